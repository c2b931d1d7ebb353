/* What an invented GPU server is, read from the file that GPU_SERVER_SCENARIO names, and how it changes meanwhile.
 *
 * A line of that file is a fact:       DEVICE KEY VALUE
 * or a change:                         @COUNT WORD PART DEVICE KEY VALUE
 * DEVICE is a number, or * for the machine. A change holds from the moment in which the journal (the file that
 * GPU_SERVER_JOURNAL names) has COUNT lines that begin with WORD and contain PART ("-": anything). The stand-in of the
 * workload writes that journal, so that the server's state depends on what was launched, never on how fast.
 */
#ifndef SCENARIO_H
#define SCENARIO_H

#define MACHINE (-1)

/* The value that holds now, or NULL. It stays valid until the next call in this thread that finds the journal longer. */
const char *fact(int device, const char *key);

/* As a number; `otherwise` if there is no such fact. */
double number(int device, const char *key, double otherwise);

/* The numbers of the devices that have `key`, in the order of the file. Returns how many there are, at most `most`. */
int devices_with(const char *key, int *found, int most);

/* Process ids of launches that are running and whose devices contain `part`. Returns how many, at most `most`. */
int running(const char *part, unsigned *found, int most);

/* Reads the scenario and the journal as they are now. Returns 0 if there is no scenario. */
int look(void);

/* What `key` (watts) comes to over time (joules) since its first call, at the value that it had at each call. */
double joules(int device, const char *key);

#endif

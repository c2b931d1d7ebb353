#define _GNU_SOURCE
#include "scenario.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { MOST_FACTS = 4096, MOST_METERS = 128 };

struct entry {
    int device;
    char key[48];
    char value[208];
};

static struct entry facts[MOST_FACTS];
static int fact_count;
static char *journal;
static off_t journal_bytes = -1;
static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;

static struct {
    int device;
    char key[24];
    double seconds, joules, watts;
} meters[MOST_METERS];
static int meter_count;

static char *text_of(const char *variable) {
    const char *path = getenv(variable);
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *text = calloc(1, size + 1);
    text[fread(text, 1, size, file)] = 0;
    fclose(file);
    return text;
}

static int times(const char *word, const char *part) {
    int count = 0;
    size_t length = strlen(word);
    for (char *line = journal; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        char *end = strchrnul(line, '\n'), *at = strstr(line, part);
        if (!strncmp(line, word, length) && line[length] == ' ' && (!strcmp(part, "-") || (at && at < end))) count++;
    }
    return count;
}

static void keep(const char *device, const char *key, const char *value) {
    int number = *device == '*' ? MACHINE : atoi(device), at = 0;
    while (at < fact_count && (facts[at].device != number || strcmp(facts[at].key, key))) at++;
    if (at == MOST_FACTS) return;
    if (at == fact_count) fact_count++;
    facts[at].device = number;
    snprintf(facts[at].key, sizeof facts[at].key, "%s", key);
    snprintf(facts[at].value, sizeof facts[at].value, "%s", value);
}

static void take(const char *line) {
    char device[12], key[48], value[208], word[24], part[64];
    int count;
    if (sscanf(line, "@%d %23s %63s %11s %47s %207[^\n]", &count, word, part, device, key, value) == 6) {
        if (times(word, part) >= count) keep(device, key, value);
    } else if (sscanf(line, "%11s %47s %207[^\n]", device, key, value) == 3) {
        keep(device, key, value);
    }
}

static off_t size_of_journal(void) {
    struct stat status;
    const char *path = getenv("GPU_SERVER_JOURNAL");
    return path && !stat(path, &status) ? status.st_size : 0;
}

int look(void) {
    pthread_mutex_lock(&reading);
    off_t size = size_of_journal();
    char *text = size != journal_bytes ? text_of("GPU_SERVER_SCENARIO") : NULL, *rest = text;
    if (text) {
        free(journal);
        journal = text_of("GPU_SERVER_JOURNAL");
        journal_bytes = size;
        fact_count = 0;
        for (char *line; (line = strsep(&rest, "\n"));) take(line);
        free(text);
    }
    pthread_mutex_unlock(&reading);
    return fact_count > 0;
}

const char *fact(int device, const char *key) {
    look();
    for (int at = 0; at < fact_count; at++)
        if (facts[at].device == device && !strcmp(facts[at].key, key)) return facts[at].value;
    return NULL;
}

double number(int device, const char *key, double otherwise) {
    const char *value = fact(device, key);
    return value ? strtod(value, NULL) : otherwise;
}

int devices_with(const char *key, int *found, int most) {
    int count = 0;
    look();
    for (int at = 0; at < fact_count && count < most; at++)
        if (facts[at].device != MACHINE && !strcmp(facts[at].key, key)) found[count++] = facts[at].device;
    return count;
}

int running(const char *part, unsigned *found, int most) {
    int count = 0;
    look();
    for (char *line = journal; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        char *end = strchrnul(line, '\n'), *at = strstr(line, part);
        unsigned pid;
        if (sscanf(line, "launch %u", &pid) == 1 && at && at < end && count < most) found[count++] = pid;
        if (sscanf(line, "exit %u", &pid) == 1)
            for (int i = 0; i < count; i++)
                if (found[i] == pid) found[i] = found[--count];
    }
    return count;
}

static int meter_of(int device, const char *key) {
    int at = 0;
    while (at < meter_count && (meters[at].device != device || strcmp(meters[at].key, key))) at++;
    if (at == meter_count && meter_count < MOST_METERS - 1) {
        meters[meter_count++].device = device;
        snprintf(meters[at].key, sizeof meters[at].key, "%s", key);
    }
    return at;
}

double joules(int device, const char *key) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    double seconds = now.tv_sec + now.tv_nsec / 1e9, watts = number(device, key, 0);
    pthread_mutex_lock(&reading);
    int at = meter_of(device, key);
    if (meters[at].seconds > 0) meters[at].joules += meters[at].watts * (seconds - meters[at].seconds);
    meters[at].seconds = seconds;
    meters[at].watts = watts;
    double total = meters[at].joules;
    pthread_mutex_unlock(&reading);
    return total;
}

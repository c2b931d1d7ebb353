/* NVML's library: begin, end, the driver, and which GPUs there are. */
#include "nvml.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 64 };
static struct device devices[MOST];
static int users;

Device handle_of(int number) {
    devices[number].number = number;
    return &devices[number];
}

int trouble(Device device, const char *key) {
    char named[64];
    if (!users) return UNINITIALIZED;
    if (!device) return INVALID_ARGUMENT;
    snprintf(named, sizeof named, "error.%s", key);
    int code = (int)number(device->number, "lost", SUCCESS);
    return code ? code : (int)number(device->number, named, SUCCESS);
}

int whole(Device device, const char *key, unsigned *value) {
    int code = trouble(device, key);
    if (code) return code;
    if (!fact(device->number, key)) return NOT_SUPPORTED;
    *value = (unsigned)number(device->number, key, 0);
    return SUCCESS;
}

int text(Device device, const char *key, char *value, unsigned length) {
    int code = trouble(device, key);
    if (code) return code;
    const char *known = fact(device->number, key);
    if (!known) return NOT_SUPPORTED;
    if (strlen(known) >= length) return INSUFFICIENT_SIZE;
    strcpy(value, known);
    return SUCCESS;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (!look()) return DRIVER_NOT_LOADED;
    int code = (int)number(MACHINE, "init", SUCCESS);
    if (!code) users++;
    return code;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
    if (!users) return UNINITIALIZED;
    users--;
    return SUCCESS;
}

const char *nvmlErrorString(int code) {
    switch (code) {
        case SUCCESS: return "Success";
        case NOT_SUPPORTED: return "Not Supported";
        case 4: return "Insufficient Permissions";
        case NOT_FOUND: return "Not Found";
        case DRIVER_NOT_LOADED: return "Driver Not Loaded";
        case 15: return "GPU is lost";
        case 18: return "Driver/library version mismatch";
        default: return "Unknown Error";
    }
}

static int told(const char *key, char *value, unsigned length) {
    const char *known = fact(MACHINE, key);
    if (!users) return UNINITIALIZED;
    if (!known) return NOT_SUPPORTED;
    snprintf(value, length, "%s", known);
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *version, unsigned length) { return told("driver", version, length); }

int nvmlSystemGetNVMLVersion(char *version, unsigned length) { return told("nvml", version, length); }

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = (int)number(MACHINE, "cuda", 0);
    return users ? SUCCESS : UNINITIALIZED;
}

/* Those that are no slices, in the order of the scenario: PCI order. */
static int whole_gpus(int *found) {
    int all[MOST], count = devices_with("uuid", all, MOST), kept = 0;
    for (int i = 0; i < count; i++)
        if (!fact(all[i], "slice_of")) found[kept++] = all[i];
    return kept;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    int found[MOST];
    *count = (unsigned)whole_gpus(found);
    return users ? SUCCESS : UNINITIALIZED;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
    int found[MOST], count = whole_gpus(found);
    if (!users) return UNINITIALIZED;
    if (index >= (unsigned)count) return INVALID_ARGUMENT;
    *device = handle_of(found[index]);
    return (int)number(found[index], "lost", SUCCESS);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Device *device) {
    int found[MOST], count = devices_with("uuid", found, MOST);
    if (!users) return UNINITIALIZED;
    for (int i = 0; i < count; i++)
        if (!strcmp(fact(found[i], "uuid"), uuid)) {
            *device = handle_of(found[i]);
            return (int)number(found[i], "lost", SUCCESS);
        }
    return NOT_FOUND;
}

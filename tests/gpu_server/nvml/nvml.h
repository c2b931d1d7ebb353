/* The part of NVML's ABI that the stand-in speaks: https://docs.nvidia.com/deploy/nvml-api/. */
#ifndef NVML_H
#define NVML_H

#include "../scenario/scenario.h"

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
};

typedef struct device { int number; } *Device;

typedef struct { unsigned long long total, free, used; } Memory;

typedef struct {
    char legacy_bus_id[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} Pci;

typedef struct { unsigned version, sensor; int temperature; } Temperature;

typedef struct { unsigned gpu, memory; } Utilization;

typedef struct { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; } Process;

typedef struct {
    unsigned field, scope;
    long long timestamp, latency;
    unsigned type, result;
    union { double d; unsigned u; unsigned long long ull; } value;
} Field;

/* Whether the call can be answered: a code of NVML. A device's facts `lost` and `error.KEY` are codes to fail with. */
int trouble(Device device, const char *key);

/* A number or a text of a device; NOT_SUPPORTED if the scenario has none. */
int whole(Device device, const char *key, unsigned *value);
int text(Device device, const char *key, char *value, unsigned length);

/* The handle of a device by its number. */
Device handle_of(int number);

#endif

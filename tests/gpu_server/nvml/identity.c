/* What a GPU is: names, memory, limits, its slot, and its slices (Multi-Instance GPU). */
#include "nvml.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 64 };

int nvmlDeviceGetUUID(Device device, char *uuid, unsigned length) { return text(device, "uuid", uuid, length); }

int nvmlDeviceGetName(Device device, char *name, unsigned length) { return text(device, "name", name, length); }

int nvmlDeviceGetVbiosVersion(Device device, char *version, unsigned length) { return text(device, "vbios", version, length); }

int nvmlDeviceGetSerial(Device device, char *serial, unsigned length) { return text(device, "serial", serial, length); }

int nvmlDeviceGetMemoryInfo(Device device, Memory *memory) {
    int code = trouble(device, "memory");
    if (code) return code;
    if (!fact(device->number, "memory")) return NOT_SUPPORTED;
    memory->total = (unsigned long long)number(device->number, "memory", 0);
    memory->used = (unsigned long long)number(device->number, "used", 0);
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(Device device, int *major, int *minor) {
    int code = trouble(device, "capability");
    if (code) return code;
    const char *known = fact(device->number, "capability");
    return known && sscanf(known, "%d.%d", major, minor) == 2 ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetPciInfo_v3(Device device, Pci *pci) {
    memset(pci, 0, sizeof *pci);
    int code = text(device, "pci", pci->bus_id, sizeof pci->bus_id);
    if (code) return code;
    sscanf(pci->bus_id, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    return SUCCESS;
}

int nvmlDeviceGetEccMode(Device device, unsigned *current, unsigned *pending) {
    int code = whole(device, "ecc", current);
    *pending = *current;
    return code;
}

int nvmlDeviceGetPersistenceMode(Device device, unsigned *mode) { return whole(device, "persistence", mode); }

int nvmlDeviceGetComputeMode(Device device, unsigned *mode) { return whole(device, "compute_mode", mode); }

int nvmlDeviceGetPowerManagementLimit(Device device, unsigned *milliwatts) {
    int code = whole(device, "power_limit", milliwatts);
    *milliwatts *= 1000;
    return code;
}

int nvmlDeviceGetEnforcedPowerLimit(Device device, unsigned *milliwatts) {
    return nvmlDeviceGetPowerManagementLimit(device, milliwatts);
}

int nvmlDeviceGetPowerManagementDefaultLimit(Device device, unsigned *milliwatts) {
    return nvmlDeviceGetPowerManagementLimit(device, milliwatts);
}

int nvmlDeviceGetMaxClockInfo(Device device, unsigned kind, unsigned *mhz) {
    return whole(device, kind == 2 ? "memory_clock" : "max_clock", mhz);
}

int nvmlDeviceGetCurrPcieLinkGeneration(Device device, unsigned *generation) { return whole(device, "pcie", generation); }

int nvmlDeviceGetMaxPcieLinkGeneration(Device device, unsigned *generation) { return whole(device, "max_pcie", generation); }

int nvmlDeviceGetCurrPcieLinkWidth(Device device, unsigned *width) { return whole(device, "lanes", width); }

int nvmlDeviceGetMaxPcieLinkWidth(Device device, unsigned *width) {
    return whole(device, fact(device->number, "max_lanes") ? "max_lanes" : "lanes", width);
}

int nvmlDeviceGetMemoryBusWidth(Device device, unsigned *bits) { return whole(device, "bus_width", bits); }

int nvmlDeviceGetRemappedRows(Device device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    int code = whole(device, "remapped", corrected);
    *uncorrected = *failed = 0;
    *pending = !code && fact(device->number, "remap_pending") != 0;
    return code;
}

int nvmlDeviceGetMigMode(Device device, unsigned *current, unsigned *pending) {
    int code = whole(device, "mig", current);
    *pending = *current;
    return code;
}

int nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned *count) {
    int code = trouble(device, "mig");
    *count = !code && fact(device->number, "mig") ? 7 : 0;
    return code;
}

/* A GPU's slices keep the index of their instance: below the greatest count some are missing. */
int nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned index, Device *slice) {
    int found[MOST], count = devices_with("slice_of", found, MOST), code = trouble(device, "mig");
    if (code) return code;
    for (int i = 0; i < count; i++)
        if (number(found[i], "slice_of", -1) == device->number && number(found[i], "slice_index", 0) == index) {
            *slice = handle_of(found[i]);
            return SUCCESS;
        }
    return NOT_FOUND;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device slice, Device *device) {
    int code = trouble(slice, "slice_of");
    if (code) return code;
    if (!fact(slice->number, "slice_of")) return INVALID_ARGUMENT;
    *device = handle_of((int)number(slice->number, "slice_of", 0));
    return SUCCESS;
}

int nvmlDeviceIsMigDeviceHandle(Device device, unsigned *is_slice) {
    *is_slice = fact(device->number, "slice_of") != NULL;
    return trouble(device, "slice_of");
}

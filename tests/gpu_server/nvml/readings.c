/* How a GPU is now: temperature, clocks, power, energy, errors, processes. */
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PROCESSES = 32, MEMORY_TEMPERATURE = 82, MEMORY_CLOCK = 2, JOULES_BEFORE = 1000000 };

int nvmlDeviceGetTemperatureV(Device device, Temperature *asked) {
    return whole(device, "temperature", (unsigned *)&asked->temperature);
}

int nvmlDeviceGetTemperature(Device device, unsigned sensor, unsigned *celsius) {
    (void)sensor;
    return whole(device, "temperature", celsius);
}

int nvmlDeviceGetFieldValues(Device device, int count, Field *fields) {
    int code = trouble(device, "fields");
    for (int i = 0; !code && i < count; i++) {
        int known = fields[i].field == MEMORY_TEMPERATURE;
        fields[i].result = known ? whole(device, "memory_temperature", &fields[i].value.u) : NOT_SUPPORTED;
    }
    return code;
}

int nvmlDeviceGetClockInfo(Device device, unsigned kind, unsigned *mhz) {
    return whole(device, kind == MEMORY_CLOCK ? "memory_clock" : "clock", mhz);
}

int nvmlDeviceGetPowerUsage(Device device, unsigned *milliwatts) {
    int code = whole(device, "power", milliwatts);
    *milliwatts *= 1000;
    return code;
}

int nvmlDeviceGetTotalEnergyConsumption(Device device, unsigned long long *millijoules) {
    int code = trouble(device, "energy");
    if (code) return code;
    if (!fact(device->number, "energy")) return NOT_SUPPORTED;
    *millijoules = (unsigned long long)(1000 * (JOULES_BEFORE + joules(device->number, "power")));
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(Device device, Utilization *rates) {
    rates->memory = 0;
    return whole(device, "utilization", &rates->gpu);
}

int nvmlDeviceGetCurrentClocksEventReasons(Device device, unsigned long long *reasons) {
    unsigned mask = 0;
    int code = whole(device, "reasons", &mask);
    *reasons = mask;
    return code;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(Device device, unsigned long long *reasons) {
    return nvmlDeviceGetCurrentClocksEventReasons(device, reasons);
}

int nvmlDeviceGetTotalEccErrors(Device device, unsigned kind, unsigned counter, unsigned long long *errors) {
    (void)counter;
    unsigned count = 0;
    int code = whole(device, kind == 0 ? "ecc_corrected" : "ecc_errors", &count); /* NVML_MEMORY_ERROR_TYPE_CORRECTED */
    *errors = count;
    return code;
}

/* The launches that run on the device, and whoever the scenario lets use it: the fact `processes`, ids with spaces. */
static int users_of(Device device, unsigned *pids) {
    int count = running(fact(device->number, "uuid"), pids, MOST_PROCESSES);
    const char *others = fact(device->number, "processes");
    for (char *rest = (char *)others; rest && *rest && count < MOST_PROCESSES;) {
        unsigned pid = (unsigned)strtoul(rest, &rest, 10);
        if (pid) pids[count++] = pid;
        else break;
    }
    return count;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *count, Process *processes) {
    unsigned pids[MOST_PROCESSES];
    int code = trouble(device, "processes");
    if (code) return code;
    unsigned found = (unsigned)users_of(device, pids), room = *count;
    *count = found;
    if (found > room) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < found; i++) processes[i] = (Process){pids[i], 1ull << 30, ~0u, ~0u};
    return SUCCESS;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(Device device, unsigned *count, Process *processes) {
    (void)processes;
    *count = 0;
    return trouble(device, "processes");
}

/* The part of AMD's library that the tool uses, in the layout of release 7.0:
 * https://rocm.docs.amd.com/projects/amdsmi/en/latest/. Every other function that AMD's Python module looks for is made by
 * the build and answers "not supported". */
#include "../scenario/scenario.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 2, NO_DEVICE = 36, MOST = 64, MOST_PROCESSES = 32 };
#define ENERGY_UNIT 15.259f /* microjoules */

typedef struct gpu { int number; } *Gpu;
static struct gpu gpus[MOST];

/* `lost`, or `error.KEY`, is a code to fail with. */
static int trouble(Gpu gpu, const char *key) {
    char named[64];
    snprintf(named, sizeof named, "error.%s", key);
    int code = (int)number(gpu->number, "lost", SUCCESS);
    return code ? code : (int)number(gpu->number, named, SUCCESS);
}

int amdsmi_init(uint64_t flags) {
    (void)flags;
    return look() ? (int)number(MACHINE, "init", SUCCESS) : NO_DEVICE;
}

int amdsmi_shut_down(void) { return SUCCESS; }

int amdsmi_status_code_to_string(int code, const char **words) {
    *words = code == NOT_SUPPORTED ? "AMDSMI_STATUS_NOT_SUPPORTED" : "AMDSMI_STATUS_UNEXPECTED_DATA";
    return SUCCESS;
}

/* One socket for each GPU, as on servers of OAM boards. */
int amdsmi_get_socket_handles(uint32_t *count, void **sockets) {
    int found[MOST];
    *count = (uint32_t)devices_with("uuid", found, MOST);
    for (uint32_t i = 0; sockets && i < *count; i++) {
        gpus[i].number = found[i];
        sockets[i] = &gpus[i];
    }
    return SUCCESS;
}

int amdsmi_get_processor_handles(void *socket, uint32_t *count, void **handles) {
    *count = 1;
    if (handles) handles[0] = socket;
    return SUCCESS;
}

typedef struct { uint32_t render, card, hsa, hip; char uuid[256]; } Enumeration;

int amdsmi_get_gpu_enumeration_info(Gpu gpu, Enumeration *told) {
    memset(told, 0, sizeof *told);
    told->render = (uint32_t)number(gpu->number, "render", 0);
    told->hip = (uint32_t)gpu->number;
    snprintf(told->uuid, sizeof told->uuid, "%s", fact(gpu->number, "uuid"));
    return trouble(gpu, "enumeration");
}

typedef struct {
    uint8_t before[4];
    uint16_t edge, hotspot, memory;
    uint8_t between[44];
    uint16_t current_gfxclk, current_socclk, current_uclk;
    uint8_t gap[52];
    uint64_t throttle_bits;
    uint8_t more[192];
    uint16_t gfxclks[8];
    uint8_t gap2[104];
    uint64_t prochot, ppt, socket_hot, regulators_hot, memory_hot;
    uint8_t rest[4544 - 472];
} Metrics;
_Static_assert(offsetof(Metrics, hotspot) == 6, "layout of temperature_hotspot");
_Static_assert(offsetof(Metrics, current_uclk) == 58, "layout of current_uclk");
_Static_assert(offsetof(Metrics, throttle_bits) == 112, "layout of indep_throttle_status");
_Static_assert(offsetof(Metrics, gfxclks) == 312, "layout of current_gfxclks");
_Static_assert(offsetof(Metrics, prochot) == 432, "layout of prochot_residency_acc");
_Static_assert(sizeof(Metrics) == 4544, "layout of amdsmi_gpu_metrics_t");

int amdsmi_get_gpu_metrics_info(Gpu gpu, Metrics *told) {
    memset(told, 0xFF, sizeof *told); /* the greatest value of a field's type: not available */
    told->hotspot = (uint16_t)number(gpu->number, "temperature", 0xFFFF);
    told->memory = (uint16_t)number(gpu->number, "memory_temperature", 0xFFFF);
    told->current_uclk = (uint16_t)number(gpu->number, "memory_clock", 0xFFFF);
    for (int i = 0; i < 8; i++) told->gfxclks[i] = (uint16_t)number(gpu->number, "clock", 0xFFFF);
    told->prochot = told->ppt = told->regulators_hot = told->memory_hot = 0;
    told->socket_hot = (uint64_t)joules(gpu->number, "hot"); /* grows while the fact `hot` is above 0 */
    return trouble(gpu, "metrics");
}

typedef struct {
    uint64_t socket;
    uint32_t current, average;
    uint64_t voltages[3];
    uint32_t limit, padding;
    uint64_t reserved[18];
} Power;
_Static_assert(sizeof(Power) == 192, "layout of amdsmi_power_info_t");

int amdsmi_get_power_info(Gpu gpu, Power *told) {
    memset(told, 0, sizeof *told);
    told->socket = told->current = (uint32_t)number(gpu->number, "power", 0xFFFF);
    told->average = 0xFFFF;
    return trouble(gpu, "power");
}

typedef struct { uint64_t cap, usual, dpm, least, most, reserved[3]; } Cap;

int amdsmi_get_power_cap_info(Gpu gpu, uint32_t sensor, Cap *told) {
    (void)sensor;
    memset(told, 0, sizeof *told);
    told->cap = told->usual = told->most = (uint64_t)(1e6 * number(gpu->number, "power_limit", 0));
    return trouble(gpu, "cap");
}

int amdsmi_get_energy_count(Gpu gpu, uint64_t *ticks, float *unit, uint64_t *time) {
    *unit = ENERGY_UNIT;
    *time = 0;
    *ticks = (uint64_t)((1e6 + joules(gpu->number, "power")) * 1e6 / ENERGY_UNIT);
    return fact(gpu->number, "energy") ? trouble(gpu, "energy") : NOT_SUPPORTED;
}

typedef struct { uint32_t total, used, reserved[2]; } Memory;

int amdsmi_get_gpu_vram_usage(Gpu gpu, Memory *told) {
    told->total = (uint32_t)(number(gpu->number, "memory", 0) / (1 << 20));
    told->used = (uint32_t)(number(gpu->number, "used", 0) / (1 << 20));
    return trouble(gpu, "memory");
}

typedef struct { uint32_t gfx, memory, media, reserved[13]; } Activity;

int amdsmi_get_gpu_activity(Gpu gpu, Activity *told) {
    memset(told, 0, sizeof *told);
    told->gfx = (uint32_t)number(gpu->number, "utilization", 0xFFFF);
    return trouble(gpu, "activity");
}

typedef struct { uint64_t correctable, uncorrectable, deferred, reserved[5]; } Errors;

int amdsmi_get_gpu_total_ecc_count(Gpu gpu, Errors *told) {
    memset(told, 0, sizeof *told);
    told->correctable = (uint64_t)number(gpu->number, "ecc_corrected", 0);
    told->uncorrectable = (uint64_t)number(gpu->number, "ecc_errors", 0);
    return trouble(gpu, "ecc");
}

typedef struct { char name[256]; uint32_t pid, padding; uint8_t rest[704 - 264]; } Process;
_Static_assert(sizeof(Process) == 704, "layout of amdsmi_proc_info_t");

/* The launches that run on the GPU (the tool gives it to them by its number), and the fact `processes`: an id of somebody's. */
int amdsmi_get_gpu_process_list(Gpu gpu, uint32_t *count, Process *told) {
    unsigned pids[MOST_PROCESSES];
    char name[16];
    snprintf(name, sizeof name, "gpu%d", gpu->number);
    int found = running(name, pids, MOST_PROCESSES - 1);
    unsigned other = (unsigned)number(gpu->number, "processes", 0);
    if (other) pids[found++] = other;
    memset(told, 0, *count * sizeof *told);
    *count = (uint32_t)found;
    for (int i = 0; i < found; i++) told[i].pid = pids[i];
    return trouble(gpu, "processes");
}

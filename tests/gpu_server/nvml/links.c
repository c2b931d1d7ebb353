/* How GPUs are linked. The fact `nvlink` of a GPU: "switch 18", or "GPU COUNT" such as "3 4": four links to GPU 3. */
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int ends(Device device, char *end, unsigned *count) {
    int code = trouble(device, "nvlink");
    if (code) return code;
    const char *known = fact(device->number, "nvlink");
    return known && sscanf(known, "%15s %u", end, count) == 2 ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetNvLinkState(Device device, unsigned link, unsigned *active) {
    char end[16];
    unsigned count;
    int code = ends(device, end, &count);
    *active = 1;
    return code ? code : link < count ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(Device device, unsigned link, unsigned *kind) {
    char end[16];
    unsigned count;
    int code = ends(device, end, &count);
    *kind = !code && !strcmp(end, "switch") ? 2 : 0;
    return code ? code : link < count ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetPciInfo_v3(Device device, Pci *pci);

int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, unsigned link, Pci *pci) {
    char end[16];
    unsigned count;
    int code = ends(device, end, &count);
    if (code) return code;
    if (link >= count || !strcmp(end, "switch")) return NOT_SUPPORTED;
    return nvmlDeviceGetPciInfo_v3(handle_of(atoi(end)), pci);
}

/* On one NUMA node: NODE; else SYS. */
int nvmlDeviceGetTopologyCommonAncestor(Device one, Device other, unsigned *level) {
    int code = trouble(one, "numa");
    *level = number(one->number, "numa", 0) == number(other->number, "numa", 0) ? 40 : 50;
    return code ? code : trouble(other, "numa");
}

int nvmlDeviceGetP2PStatus(Device one, Device other, int kind, unsigned *status) {
    (void)kind;
    int code = trouble(one, "p2p");
    unsigned here = (unsigned)number(one->number, "p2p", 0), there = (unsigned)number(other->number, "p2p", 0);
    *status = here > there ? here : there;
    return code ? code : trouble(other, "p2p");
}

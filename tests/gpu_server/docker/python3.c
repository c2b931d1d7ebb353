/* All of a container's userland: a "python3" that prints which devices it finds and which variables name them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static void list(const char *folder, const char *start) {
    DIR *found = opendir(folder);
    char path[512];
    struct stat status;
    for (struct dirent *entry; found && (entry = readdir(found));) {
        if (strncmp(entry->d_name, start, strlen(start))) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (stat(path, &status) || !S_ISCHR(status.st_mode)) continue;
        int file = open(path, O_RDWR);
        const char *why = file >= 0 || errno == ENXIO ? "may be opened" : strerror(errno); /* ENXIO: it has no driver here */
        printf("device %s %u:%u %s\n", path, major(status.st_rdev), minor(status.st_rdev), why);
        if (file >= 0) close(file);
    }
    if (found) closedir(found);
}

int main(void) {
    const char *names[] = {"NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"};
    list("/dev", "nvidia");
    list("/dev/nvidia-caps", "nvidia-cap");
    list("/dev", "kfd");
    list("/dev/dri", "");
    for (int i = 0; i < 4; i++) printf("variable %s=%s\n", names[i], getenv(names[i]) ? getenv(names[i]) : "(unset)");
    return 0;
}

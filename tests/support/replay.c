/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over the files of its corpus, without a fuzzer: replay PATH... */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t replayed;

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return 1;
    }
    uint8_t *data = NULL;
    size_t size = 0;
    struct stat status;

    if (fstat(fileno(file), &status) == 0) {
        data = malloc((size_t)status.st_size + 1);
        /* An exact copy on the heap, so that a sanitizer sees a read past its end. */
        if (data != NULL)
            size = fread(data, 1, (size_t)status.st_size, file);
        uint8_t *exact = realloc(data, size > 0 ? size : 1);
        data = exact != NULL ? exact : data;
    }
    fclose(file);
    if (data == NULL) {
        fprintf(stderr, "%s: cannot be read\n", path);
        return 1;
    }
    (void)LLVMFuzzerTestOneInput(data, size);
    free(data);
    replayed++;
    return 0;
}

static int replay_folder(const char *path)
{
    DIR *folder = opendir(path);
    if (folder == NULL)
        return replay_file(path);
    int failed = 0;

    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        char file[4096];
        if (entry->d_name[0] == '.')
            continue;
        (void)snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
        failed |= replay_file(file);
    }
    closedir(folder);
    return failed;
}

int main(int argc, char **argv)
{
    int failed = 0;

    for (int i = 1; i < argc; i++)
        failed |= replay_folder(argv[i]);
    printf("%zu inputs replayed\n", replayed);
    return failed != 0 || replayed == 0;
}

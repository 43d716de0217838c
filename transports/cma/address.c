/* SPDX-License-Identifier: Apache-2.0 */
#include "cma/cma.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/blob.h"

static kvx_status file_read(const char *path, void *buffer, size_t count)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t got = fd < 0 ? -1 : read(fd, buffer, count);
    if (fd >= 0)
        (void)close(fd);
    return got == (ssize_t)count ? KVX_OK : KVX_UNSUPPORTED;
}

static kvx_status inode_read(const char *path, uint64_t *inode_out)
{
    struct stat facts;
    KVX_ENSURE(stat(path, &facts) == 0, KVX_UNSUPPORTED);
    *inode_out = facts.st_ino;
    return KVX_OK;
}

kvx_status kvx_cma_process_read(kvx_cma_process *process_out)
{
    kvx_cma_process process = {
        .pid = (uint64_t)getpid(),
        .uid = getuid(),
        .gid = getgid(),
    };
    if (inode_read("/proc/self/ns/pid", &process.pid_namespace) != KVX_OK ||
            inode_read("/proc/self/ns/user", &process.user_namespace) != KVX_OK ||
            file_read("/proc/sys/kernel/random/boot_id", process.boot_id,
                    sizeof(process.boot_id)) != KVX_OK) {
        kvx_log(KVX_LOG_ERROR, "cma: /proc does not tell the namespaces and the boot id");
        return KVX_UNSUPPORTED;
    }
    *process_out = process;
    return KVX_OK;
}

/* CAP_SYS_PTRACE lifts the rule that both run as one user. */
static bool may_read_all_users(void)
{
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = { { 0 } };
    return syscall(SYS_capget, &header, sets) == 0 && (sets[0].effective >> CAP_SYS_PTRACE & 1) != 0;
}

const char *kvx_cma_refusal(const kvx_cma_process *reader, const kvx_cma_process *owner)
{
    if (memcmp(reader->boot_id, owner->boot_id, sizeof(owner->boot_id)) != 0)
        return "the peer is on another host; cma reaches its own host only, use another "
               "transport";
    if (reader->user_namespace != owner->user_namespace)
        return "the peer is in another user namespace; run both in the same one";
    if (reader->pid_namespace != owner->pid_namespace)
        return "the peer is in another PID namespace; share it (docker --pid=host or "
               "--pid=container:NAME, in a pod shareProcessNamespace: true)";
    if ((reader->uid != owner->uid || reader->gid != owner->gid) && !may_read_all_users())
        return "the peer runs as another user or group; run both as the same ones, or give "
               "the reader CAP_SYS_PTRACE";
    return NULL;
}

const char *kvx_cma_forbidden_reason(void)
{
    char scope = '0';
    if (file_read("/proc/sys/kernel/yama/ptrace_scope", &scope, 1) == KVX_OK && scope != '0')
        return "the kernel forbids reading the peer's memory (Yama); set "
               "kernel.yama.ptrace_scope=0, or give the reader CAP_SYS_PTRACE, or let the "
               "owner call prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY)";
    return "the kernel forbids reading the peer's memory: it runs with more rights, is not "
           "dumpable, or a security policy says so; run both with the same rights and "
           "dumpable, or give the reader CAP_SYS_PTRACE";
}

kvx_status kvx_cma_address_pack(
        const kvx_cma_address *address, void *buffer, size_t size, size_t *length_out)
{
    const kvx_cma_process *const process = &address->process;
    kvx_blob blob;
    kvx_blob_begin(&blob, buffer, size, KVX_CMA_ADDRESS_MAGIC);
    kvx_blob_u64(&blob, address->identity);
    kvx_blob_u64(&blob, process->pid);
    kvx_blob_u64(&blob, process->pid_namespace);
    kvx_blob_u64(&blob, process->user_namespace);
    kvx_blob_u64(&blob, process->uid);
    kvx_blob_u64(&blob, process->gid);
    kvx_blob_bytes(&blob, process->boot_id, sizeof(process->boot_id));
    kvx_blob_u64(&blob, address->nonce_at);
    kvx_blob_bytes(&blob, address->nonce, sizeof(address->nonce));
    return kvx_blob_end(&blob, length_out);
}

static void bytes_copy(kvx_reader *reader, void *to, size_t count)
{
    const uint8_t *const from = kvx_read_bytes(reader, count);
    if (from != NULL)
        memcpy(to, from, count);
}

kvx_status kvx_cma_address_unpack(const void *data, size_t length, kvx_cma_address *address_out)
{
    kvx_reader reader;
    KVX_TRY(kvx_blob_open(&reader, data, length, KVX_CMA_ADDRESS_MAGIC));

    kvx_cma_address address = { .identity = kvx_read_u64(&reader) };
    address.process.pid = kvx_read_u64(&reader);
    address.process.pid_namespace = kvx_read_u64(&reader);
    address.process.user_namespace = kvx_read_u64(&reader);
    address.process.uid = kvx_read_u64(&reader);
    address.process.gid = kvx_read_u64(&reader);
    bytes_copy(&reader, address.process.boot_id, sizeof(address.process.boot_id));
    address.nonce_at = kvx_read_u64(&reader);
    bytes_copy(&reader, address.nonce, sizeof(address.nonce));
    KVX_ENSURE(kvx_reader_is_done(&reader), KVX_PROTOCOL);
    KVX_ENSURE(address.process.pid > 0 && address.process.pid <= INT32_MAX, KVX_PROTOCOL);
    *address_out = address;
    return KVX_OK;
}

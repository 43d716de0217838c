/* SPDX-License-Identifier: Apache-2.0 */
#include "loopback/loopback.h"

#include <pthread.h>

#include "base/map.h"
#include "base/random.h"

/* Writers come first, or readers that never pause would keep a domain from closing. */
static pthread_rwlock_t lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

/* All of it is guarded by lock. */
static struct {
    kvx_map domains; /* identity to kvx_domain */
    kvx_map mrs;     /* serial to kvx_mr */
    uint64_t last_serial;
    uint64_t process;
} live;

static void write_begin(void)
{
    (void)pthread_rwlock_wrlock(&lock);
}

static void write_end(void)
{
    (void)pthread_rwlock_unlock(&lock);
}

static kvx_status domain_add_locked(kvx_domain *domain)
{
    if (live.process == 0)
        KVX_TRY(kvx_random(&live.process));
    return kvx_map_insert(&live.domains, domain->params.identity, domain);
}

kvx_status kvx_loopback_domain_add(kvx_domain *domain)
{
    write_begin();
    const kvx_status status = domain_add_locked(domain);
    write_end();
    return status;
}

/* The last domain takes the tables with it, so that a closed library holds no memory. */
void kvx_loopback_domain_remove(kvx_domain *domain)
{
    write_begin();
    if (kvx_map_find(&live.domains, domain->params.identity) == domain)
        (void)kvx_map_remove(&live.domains, domain->params.identity);
    if (live.domains.count == 0)
        kvx_map_fini(&live.domains);
    if (live.mrs.count == 0)
        kvx_map_fini(&live.mrs);
    write_end();
}

kvx_status kvx_loopback_mr_add(kvx_mr *mr)
{
    write_begin();
    mr->serial = ++live.last_serial;
    const kvx_status status = kvx_map_insert(&live.mrs, mr->serial, mr);
    write_end();
    return status;
}

void kvx_loopback_mr_remove(kvx_mr *mr)
{
    write_begin();
    (void)kvx_map_remove(&live.mrs, mr->serial);
    write_end();
}

void kvx_loopback_find_begin(void)
{
    (void)pthread_rwlock_rdlock(&lock);
}

void kvx_loopback_find_end(void)
{
    (void)pthread_rwlock_unlock(&lock);
}

bool kvx_loopback_domain_is_live(uint64_t identity)
{
    return kvx_map_find(&live.domains, identity) != NULL;
}

const kvx_mr *kvx_loopback_mr_find(uint64_t serial)
{
    return kvx_map_find(&live.mrs, serial);
}

uint64_t kvx_loopback_process(void)
{
    kvx_loopback_find_begin();
    const uint64_t process = live.process;
    kvx_loopback_find_end();
    return process;
}

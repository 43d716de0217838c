/* SPDX-License-Identifier: Apache-2.0 */
/* The library's own settings: their table, and whether a set fits together. */
#include "config/settings.h"

#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "config/entry.h"
#include "config/table.h"

#define DAY_MS  UINT64_C(86400000)
#define KIB     UINT64_C(1024)
#define PIB     (UINT64_C(1) << 50)
#define MILLION UINT64_C(1000000)

static const char *const progress_choices[] = { "thread", "caller", NULL };
static const char *const confirm_choices[] = { "owner", "clock", NULL };

_Static_assert(KVX_PROGRESS_THREAD == 0 && KVX_PROGRESS_CALLER == 1, "order of the choices");
_Static_assert(KVX_CONFIRM_OWNER == 0 && KVX_CONFIRM_CLOCK == 1, "order of the choices");
_Static_assert(sizeof(kvx_progress_mode) == sizeof(uint32_t), "choices are stored as 32 bits");
_Static_assert(sizeof(kvx_lease_confirm) == sizeof(uint32_t), "choices are stored as 32 bits");

#define MS(name, text, least, most, words)                                                \
    {                                                                                     \
        .key = #name "_ms", .default_text = (text), .kind = KVX_FIELD_MS, .min = (least), \
        .max = (most), .help = (words), .offset = offsetof(kvx_settings, name##_ns)       \
    }
#define COUNT(name, text, least, most, words)                                          \
    {                                                                                  \
        .key = #name, .default_text = (text), .kind = KVX_FIELD_COUNT, .min = (least), \
        .max = (most), .help = (words), .offset = offsetof(kvx_settings, name)         \
    }
#define BYTES(name, text, least, most, words)                                          \
    {                                                                                  \
        .key = #name, .default_text = (text), .kind = KVX_FIELD_BYTES, .min = (least), \
        .max = (most), .help = (words), .offset = offsetof(kvx_settings, name)         \
    }
#define CHOICE(name, text, list, words)                                                    \
    {                                                                                      \
        .key = #name, .default_text = (text), .kind = KVX_FIELD_CHOICE, .choices = (list), \
        .help = (words), .offset = offsetof(kvx_settings, name)                            \
    }

const kvx_field kvx_settings_table[] = {
    {
            .key = "transport",
            .default_text = "auto",
            .kind = KVX_FIELD_TRANSPORT,
            .help = "what moves the bytes; auto: the first that reaches the peer",
            .offset = offsetof(kvx_settings, transport),
    },
    CHOICE(progress, "thread", progress_choices,
            "who does the node's work: a thread of its own, or the caller"),
    CHOICE(lease_confirm, "owner", confirm_choices,
            "what delivers a pull: the owner's word, or this side's clock alone"),

    MS(lease, "10000", 10, 3600000, "ms that a reader may read before it must renew"),
    MS(margin, "100", 0, 60000,
            "ms by which a reader stops before its lease ends; 0.1 % comes on top"),
    MS(fence, "2000", 1, 600000, "ms after a lease ends before the owner frees its pages"),
    MS(hold, "30000", 1, DAY_MS, "ms that a slot for a reader stays open untaken"),
    MS(patience, "60000", 1, DAY_MS,
            "ms that a subscription waits for READY, and READY for its pull"),
    MS(deadline, "30000", 1, DAY_MS, "ms that a pull may take, all stages together"),
    MS(publication_age, "120000", 1, 7 * DAY_MS,
            "ms after which a publication grants no lease any more"),
    MS(ping, "250", 1, 60000, "ms between signs of life on a connection"),
    MS(peer_timeout, "2000", 2, 3600000, "ms of silence after which a peer is lost"),
    MS(drain, "100", 0, 60000,
            "ms that reads get to end by themselves before their endpoint is closed"),
    MS(close, "1000", 1, 60000,
            "ms that the close of an endpoint may take before its pages are held"),
    MS(hello, "2000", 10, 60000, "ms that a new connection gets for its handshake"),
    MS(redial, "100", 1, 1000, "ms between tries to connect, doubled up to 1000"),
    MS(tombstone, "60000", 0, DAY_MS, "ms that a room which ended is remembered"),

    BYTES(parked_bytes_max, "64GiB", 1, PIB, "bytes in pages of live publications and reservations"),
    COUNT(parked_rooms_max, "4096", 1, MILLION, "publications and reservations live"),
    COUNT(waiting_max, "65536", 1, 16 * MILLION,
            "subscriptions kept for rooms that are not published yet"),
    COUNT(tombstones_max, "16384", 1, 16 * MILLION, "ended rooms remembered"),
    COUNT(subscriptions_max, "16384", 1, 16 * MILLION, "own subscriptions not ended"),
    COUNT(pulls_max, "64", 1, 65536, "pulls at once"),
    BYTES(pull_bytes_max, "16GiB", 1, PIB, "bytes of pulls at once; one that is larger runs alone"),
    COUNT(peers_max, "1024", 1, 65536, "peers we connect to"),
    COUNT(connections_max, "4096", 1, 65536, "connections accepted"),
    COUNT(handshakes_max, "64", 1, 65536,
            "connections that have not said HELLO; the oldest gives way"),
    BYTES(output_bytes_max, "64MiB", 64 * KIB, 4 * KIB * KIB * KIB,
            "bytes waiting to be sent on a connection; more closes it"),

    BYTES(window_bytes, "256MiB", 4 * KIB, PIB, "bytes of reads in flight"),
    COUNT(window_reads, "4096", 1, MILLION, "reads in flight"),
    BYTES(read_bytes_max, "16MiB", 4 * KIB, KIB *KIB *KIB,
            "bytes of one read; larger ones are cut, to window_bytes at most"),
};

const size_t kvx_settings_table_count = sizeof(kvx_settings_table) / sizeof(kvx_settings_table[0]);

static void setting_store(const kvx_entry *entry, kvx_settings *settings)
{
    unsigned char *at = (unsigned char *)settings + entry->field.offset;
    const uint64_t number = kvx_field_number(&entry->field, entry->value);
    const uint64_t number_ns = number * KVX_NS_PER_MS;
    const uint32_t number_u32 = (uint32_t)number;
    switch (entry->field.kind) {
    case KVX_FIELD_COUNT:
    case KVX_FIELD_CHOICE: memcpy(at, &number_u32, sizeof(number_u32)); break;
    case KVX_FIELD_BYTES: memcpy(at, &number, sizeof(number)); break;
    case KVX_FIELD_MS: memcpy(at, &number_ns, sizeof(number_ns)); break;
    case KVX_FIELD_TRANSPORT:
        memcpy(at, entry->value, strnlen(entry->value, sizeof(settings->transport) - 1));
        break;
    case KVX_FIELD_TEXT: break;
    }
}

/* Milliseconds for people, rounded up so that a named remedy is enough. */
static unsigned long long in_ms(uint64_t ns)
{
    return (ns + KVX_NS_PER_MS - 1) / KVX_NS_PER_MS;
}

/* After trust ends, a reader drains, then closes, and its clock may run a little slow. */
static kvx_status fence_check(kvx_config *config, const kvx_settings *settings)
{
    const uint64_t skew_ns = settings->lease_ns / 1000 * 3;
    const uint64_t needed_ns = settings->drain_ns + settings->close_ns + skew_ns;
    if (settings->fence_ns >= needed_ns)
        return KVX_OK;
    return kvx_config_fail(config, KVX_INVALID, NULL,
            "fence_ms %llu is below drain_ms %llu + close_ms %llu + 0.3 %% of lease_ms %llu: "
            "raise fence_ms to %llu, or lower the others",
            in_ms(settings->fence_ns), in_ms(settings->drain_ns), in_ms(settings->close_ns),
            in_ms(settings->lease_ns), in_ms(needed_ns));
}

static kvx_status lease_check(kvx_config *config, const kvx_settings *settings)
{
    if (settings->lease_ns < 4 * settings->ping_ns)
        return kvx_config_fail(config, KVX_INVALID, NULL,
                "lease_ms %llu is below 4 times ping_ms %llu: raise lease_ms to %llu, or "
                "lower ping_ms",
                in_ms(settings->lease_ns), in_ms(settings->ping_ns), in_ms(4 * settings->ping_ns));
    if (settings->margin_ns > settings->lease_ns / 2)
        return kvx_config_fail(config, KVX_INVALID, NULL,
                "margin_ms %llu is more than half of lease_ms %llu: raise lease_ms to %llu, "
                "or lower margin_ms",
                in_ms(settings->margin_ns), in_ms(settings->lease_ns),
                in_ms(2 * settings->margin_ns));
    return KVX_OK;
}

static kvx_status timeout_check(kvx_config *config, const kvx_settings *settings)
{
    if (settings->peer_timeout_ns >= 2 * settings->ping_ns)
        return KVX_OK;
    return kvx_config_fail(config, KVX_INVALID, NULL,
            "peer_timeout_ms %llu is below 2 times ping_ms %llu: raise peer_timeout_ms to "
            "%llu, or lower ping_ms",
            in_ms(settings->peer_timeout_ns), in_ms(settings->ping_ns),
            in_ms(2 * settings->ping_ns));
}

kvx_status kvx_settings_from(kvx_config *config, kvx_settings *settings_out)
{
    kvx_settings settings = { 0 };
    for (size_t i = 0; i < config->count; i++) {
        if (config->entries[i].transport == NULL)
            setting_store(&config->entries[i], &settings);
    }
    KVX_TRY(fence_check(config, &settings));
    KVX_TRY(lease_check(config, &settings));
    KVX_TRY(timeout_check(config, &settings));
    /* A read that is larger than the window could never be posted. */
    if (settings.read_bytes_max > settings.window_bytes)
        settings.read_bytes_max = settings.window_bytes;
    *settings_out = settings;
    return KVX_OK;
}

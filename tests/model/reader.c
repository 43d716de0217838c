/* SPDX-License-Identifier: Apache-2.0 */
/* The reading side of the engine. */
#include "engine.h"

#include <string.h>

#include "process.h"
#include "watch.h"

#define RETRY_NS (60 * MS) /* at most, before another try */

sub *engine_find(node *n, uint64_t nonce)
{
    for (sub *s = n->subs; s != NULL; s = s->next) {
        if (s->nonce == nonce && s->end != NULL)
            return s;
    }
    return NULL;
}

static sub *find_id(const node *n, kvx_subscription_id id)
{
    for (sub *s = n->subs; s != NULL; s = s->next) {
        if (s->id.value == id.value)
            return s;
    }
    return NULL;
}

static bool chaos_chance(const node *n, uint32_t chance)
{
    world *w = n->proc->w;

    return world_is_chaos(w) && world_chance(w, chance);
}

/* --- subscribing -------------------------------------------------------------------------------- */

typedef struct pages_given {
    kvx_page_table table;
    kvx_pull_params params;
} pages_given;

static void give_pages(const sub *s, uint32_t count, pages_given *out)
{
    out->table = (kvx_page_table){ s->pages, count };
    out->params = (kvx_pull_params){ .struct_size = sizeof(out->params),
        .first_token = s->skip * PAGE_TOKENS };
    if (count > 0) {
        out->params.tables = &out->table;
        out->params.table_count = 1;
    }
}

static void own_pages(sub *s)
{
    for (uint32_t i = 0; i < s->page_count; i++) {
        page_state *p = &s->node->pages[s->pages[i]];
        if (p->puller == NULL && p->publications == 0)
            p->puller = s;
    }
}

static void free_pages(sub *s)
{
    for (uint32_t i = 0; i < s->page_count; i++) {
        page_state *p = &s->node->pages[s->pages[i]];
        if (p->taker == s)
            engine_page_fill(s->node, s->pages[i], 0x77);
        p->taker = p->taker == s ? NULL : p->taker;
        p->puller = p->puller == s ? NULL : p->puller;
    }
}

static void subscribe_again(node *n, wish *want, kvx_status status)
{
    world *w = n->proc->w;

    uint64_t pause = status == KVX_GONE || status == KVX_REVOKED ? 12 * RETRY_NS : RETRY_NS;

    if (n->retries == 0 || !world_is_chaos(w))
        return;
    n->retries--;
    proc_command_at(n, w->t + world_span(w, pause) + MS, engine_subscribe, want, 0);
}

static kvx_status ask(node *n, sub *s, const wish *want, uint64_t now)
{
    kvx_subscription subscription = {
        .struct_size = sizeof(subscription),
        .peer = n->peers[want->peer],
        .room = want->room,
        .reader = want->reader,
        .readers = want->readers,
        .patience_ms = want->patience_ms,
        .user = (void *)(uintptr_t)want,
    };
    pages_given given;

    give_pages(s, s->page_count, &given);
    n->subscribing = s;
    kvx_status status = kvx_session_subscribe(n->session, &subscription,
            s->is_early ? &given.params : NULL, s->joint != NULL, now, &s->id);
    n->subscribing = NULL;
    if (status == KVX_OK && s->nonce == 0)
        watch_broken(n->proc->w, "I18", "subscribe said OK and sent nothing");
    return status;
}

static sub *sub_make(node *n, wish *want)
{
    world *w = n->proc->w;
    sub *s = world_take(w, sizeof(*s));

    *s = (sub){ .node = n,
        .room = want->room,
        .reader = want->reader,
        .readers = want->readers,
        .skip = want->skip,
        .born = w->t,
        .is_early = want->is_early,
        .wish = want };
    if (s->is_early) {
        s->page_count = 1 + (uint32_t)world_below(w, ROOM_PAGES_MAX);
        if (!engine_choose_pages(n, s->page_count, s->pages)) {
            s->page_count = 0;
            s->is_early = false;
        }
    }
    return s;
}

static bool subscribe_one(node *n, wish *want, joint *j, uint64_t now)
{
    world *w = n->proc->w;
    sub *s = sub_make(n, want);

    s->joint = j;
    s->rank = n->rank;
    n->now = now;
    s->next = n->subs;
    n->subs = s;
    own_pages(s);
    kvx_status status = ask(n, s, want, now);
    WORLD_LOG(w, n->proc->name, "subscribe room %llu reader %u of %u: %s, nonce %llx",
            (unsigned long long)s->room, s->reader, s->readers, kvx_status_name(status),
            (unsigned long long)s->nonce);
    if (status != KVX_OK) {
        n->subs = s->next;
        free_pages(s);
        return false;
    }
    want->made = s;
    if (s->is_early)
        s->state = SUB_PULL;
    if (j != NULL)
        j->subs[j->count++] = s;
    sub twice = *s;
    if (chaos_chance(n, 100) && ask(n, &twice, want, now) != KVX_BUSY && !s->is_early)
        watch_broken(w, "I18", "a room is subscribed twice on one connection");
    return true;
}

static void fail_one(node *n, const sub *s, kvx_status cause, uint64_t now)
{
    kvx_status status = kvx_session_fail(n->session, s->id, cause, now);

    WORLD_LOG(n->proc->w, n->proc->name, "cancel nonce %llx: %s", (unsigned long long)s->nonce,
            kvx_status_name(status));
    if (status != KVX_OK && status != KVX_NOT_FOUND)
        watch_broken(n->proc->w, "I18", "cancel: %s", kvx_status_name(status));
}

static void fail_joint(joint *j, kvx_status cause, uint64_t now)
{
    for (uint32_t i = 0; i < j->count; i++) {
        sub *s = j->subs[i];
        if (s->terminal_count > 0)
            continue;
        s->node->now = now;
        fail_one(s->node, s, cause, now);
        s->node->has_orders = true;
        s->node->has_poll = true;
    }
}

void engine_subscribe(node *n, uint64_t now, void *object, uint64_t unused)
{
    wish *want = object;
    proc *p = n->proc;
    joint *j = NULL;
    bool is_made = true;

    (void)unused;
    if (p->node_count > 1 && p->w->set->is_joint)
        j = world_take(p->w, sizeof(*j));
    for (uint32_t i = 0; i < (j != NULL ? p->node_count : 1); i++) {
        node *each = j != NULL ? &p->nodes[i] : n;
        is_made = is_made && each->is_peer_up[want->peer] && subscribe_one(each, want, j, now);
    }
    if (!is_made) {
        if (j != NULL)
            fail_joint(j, KVX_CANCELLED, now);
        subscribe_again(n, want, KVX_AGAIN);
    }
    for (uint32_t i = 0; i < p->node_count; i++)
        node_called(&p->nodes[i]);
}

/* --- pulling ------------------------------------------------------------------------------------ */

static uint32_t pages_wanted(const sub *s)
{
    uint32_t all = s->pub == NULL ? 0 : s->pub->page_count;

    return all > s->skip ? all - s->skip : 0;
}

/* Sometimes an engine is wrong and gives a page that is in use. */
static void steal_page(node *n, sub *s)
{
    uint32_t at = (uint32_t)world_below(n->proc->w, n->page_count);

    if (s->page_count == 0 || !chaos_chance(n, 60) || s->joint != NULL)
        return;
    if (n->pages[at].puller == NULL && n->pages[at].publications == 0)
        return;
    s->pages[s->page_count - 1] = at;
    s->has_stolen_page = true;
}

static bool choose(node *n, sub *s)
{
    s->page_count = pages_wanted(s);
    s->has_stolen_page = false;
    if (!engine_choose_pages(n, s->page_count, s->pages)) {
        s->page_count = 0;
        return false;
    }
    steal_page(n, s);
    return true;
}

static void pull_twice(node *n, sub *s, uint64_t now)
{
    pages_given given;

    give_pages(s, s->page_count, &given);
    kvx_status status = kvx_session_pull(n->session, s->id, &given.params, now);
    if (status != KVX_BUSY && status != KVX_NOT_FOUND)
        watch_broken(n->proc->w, "I18", "a second pull of one subscription: %s",
                kvx_status_name(status));
}

static kvx_status pull_one(node *n, sub *s, uint64_t now)
{
    pages_given given;

    n->now = now;
    s->skip = s->pub != NULL && s->skip > s->pub->page_count ? s->pub->page_count : s->skip;
    if (!choose(n, s))
        return KVX_AGAIN;
    give_pages(s, s->page_count, &given);
    if (s->page_count == 0)
        given.params.first_token = 0;
    kvx_status checked = kvx_session_pull_check(n->session, s->id, &given.params);
    kvx_status status = kvx_session_pull(n->session, s->id, &given.params, now);
    WORLD_LOG(n->proc->w, n->proc->name, "pull nonce %llx, %u pages: %s",
            (unsigned long long)s->nonce, s->page_count, kvx_status_name(status));
    if (checked != status)
        watch_broken(n->proc->w, "I18", "pull is checked as %s", kvx_status_name(checked));
    if (status != KVX_OK) {
        s->page_count = 0;
        return status;
    }
    own_pages(s);
    s->state = SUB_PULL;
    if (chaos_chance(n, 100))
        pull_twice(n, s, now);
    return KVX_OK;
}

static void pull_failed(node *n, sub *s, kvx_status status, uint64_t now)
{
    world *w = n->proc->w;

    if (s->joint != NULL)
        fail_joint(s->joint, status, now);
    else if (status == KVX_AGAIN) {
        s->is_pull_refused = true;
        proc_command_at(n, w->t + RETRY_NS, engine_pull, s, 0);
    } else if (status != KVX_NOT_FOUND && status != KVX_BUSY && status != KVX_CLOSED)
        watch_broken(w, "I18", "pull: %s", kvx_status_name(status));
}

void engine_pull(node *n, uint64_t now, void *object, uint64_t unused)
{
    sub *s = object;
    uint32_t count = s->joint != NULL ? s->joint->count : 1;

    (void)unused;
    for (uint32_t i = 0; i < count; i++) {
        sub *each = s->joint != NULL ? s->joint->subs[i] : s;
        if (each->state != SUB_READY)
            return;
    }
    for (uint32_t i = 0; i < count; i++) {
        sub *each = s->joint != NULL ? s->joint->subs[i] : s;
        kvx_status status = pull_one(each->node, each, now);
        if (status != KVX_OK) {
            pull_failed(n, s, status, now);
            break;
        }
    }
    for (uint32_t i = 0; i < n->proc->node_count; i++)
        node_called(&n->proc->nodes[i]);
}

void engine_cancel(node *n, uint64_t now, void *object, uint64_t unused)
{
    sub *s = object;

    (void)unused;
    n->now = now;
    if (s->joint != NULL) {
        fail_joint(s->joint, KVX_CANCELLED, now);
    } else {
        fail_one(n, s, KVX_CANCELLED, now);
        if (chaos_chance(n, 256))
            fail_one(n, s, KVX_CANCELLED, now);
    }
    for (uint32_t i = 0; i < n->proc->node_count; i++)
        node_called(&n->proc->nodes[i]);
}

/* --- events ------------------------------------------------------------------------------------- */

static void on_ready(node *n, sub *s, const kvx_event *event)
{
    world *w = n->proc->w;
    uint64_t pauses[] = { 0, 10 * MS, 300 * MS, 2 * SECOND };

    if (s->is_ready_told || s->state != SUB_READY ||
            event->ready.generation.counter != s->generation.counter)
        watch_broken(w, "I18", "READY comes twice, early or for another generation");
    s->is_ready_told = true;
    if (s->wish->is_passive)
        return;
    if (s->joint != NULL && ++s->joint->ready < s->joint->count)
        return;
    uint64_t pause = world_span(w, pauses[world_below(w, 4)]);
    if (world_chance(w, 940) || w->is_scripted)
        proc_command_at(n, w->t + pause, engine_pull, s, 0);
    if (chaos_chance(n, 200))
        proc_command_at(n, w->t + world_span(w, 2 * SECOND), engine_cancel, s, 0);
}

static void on_terminal(node *n, sub *s, const kvx_event *event)
{
    world *w = n->proc->w;

    s->status = event->status;
    s->is_held = event->pages_held;
    watch_terminal(s);
    if (event->kind == KVX_EVENT_PULLED) {
        watch_pulled(s);
        w->pulled++;
    } else {
        w->failed++;
        w->held += s->is_held;
    }
    s->state = SUB_END;
    if (s->joint != NULL && event->kind == KVX_EVENT_FAILED)
        fail_joint(s->joint, event->status, n->now); /* also when it is polled before the step */
    if (!s->is_held)
        free_pages(s);
    if (event->kind == KVX_EVENT_FAILED && !s->wish->is_passive &&
            (s->joint == NULL || s->joint->subs[0] == s))
        subscribe_again(n, s->wish, s->status);
}

void engine_sub_event(node *n, const kvx_event *event)
{
    sub *s = find_id(n, event->subscription);

    if (s == NULL) {
        watch_broken(n->proc->w, "I18", "an event of an unknown subscription");
        return;
    }
    if (event->kind == KVX_EVENT_READY) {
        on_ready(n, s, event);
    } else if (event->kind == KVX_EVENT_PAGES_QUIET) {
        if (!s->is_held)
            watch_broken(n->proc->w, "I5", "PAGES_QUIET of pages that are not held");
        s->is_held = false;
        free_pages(s);
    } else {
        on_terminal(n, s, event);
    }
}

void engine_credit(node *n)
{
    for (sub *s = n->subs; s != NULL; s = s->next) {
        if (s->is_pull_refused && s->state == SUB_READY)
            proc_command_at(n, n->proc->w->t, engine_pull, s, 0);
        s->is_pull_refused = false;
    }
}

/* --- the ranks of a group ------------------------------------------------------------------------ */

static void joint_step(node *n, sub *s, kvx_joint_step step, kvx_status status)
{
    joint *j = s->joint;
    uint64_t now = n->now;

    if (step == KVX_JOINT_FAILED) {
        j->failed++;
        fail_joint(j, status, now);
        return;
    }
    uint32_t *count = step == KVX_JOINT_BYTES_IN ? &j->bytes_in : &j->valid;
    if (++*count < j->count || j->failed > 0)
        return;
    for (uint32_t i = 0; i < j->count; i++) {
        node *each = j->subs[i]->node;
        if (step == KVX_JOINT_BYTES_IN)
            kvx_session_joint_release(each->session, j->subs[i]->id, now);
        else
            kvx_session_joint_deliver(each->session, j->subs[i]->id, now);
        each->has_orders = true;
        each->has_poll = true;
    }
}

void engine_joint_step(node *n)
{
    kvx_subscription_id id;
    kvx_joint_step step;
    kvx_status status;

    if (!n->proc->w->set->is_joint || n->is_over)
        return;
    while (kvx_session_next_joint(n->session, &id, &step, &status)) {
        sub *s = find_id(n, id);
        if (s == NULL || s->joint == NULL) {
            watch_broken(n->proc->w, "I16", "a step of an unknown group");
            return;
        }
        joint_step(n, s, step, status);
    }
}

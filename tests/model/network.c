/* SPDX-License-Identifier: Apache-2.0 */
#include "network.h"

#include <string.h>

#include "process.h"
#include "watch.h"

uint64_t network_delay(world *w)
{
    if (w->is_scripted)
        return w->script_delay;
    if (w->moods.is_net_slow && world_is_chaos(w) && world_chance(w, 100))
        return world_span(w, w->settings.lease_ns);
    return 100 * US + world_span(w, 3 * MS);
}

end *network_find(const node *n, kvx_link_id link)
{
    for (end *e = n->proc->ends; e != NULL; e = e->next) {
        if (e->link == link && e->node == n)
            return e;
    }
    return NULL;
}

/* --- ends of connections ----------------------------------------------------------------------- */

static void end_unlink(end *e)
{
    for (end **at = &e->proc->ends; *at != NULL; at = &(*at)->next) {
        if (*at == e) {
            *at = e->next;
            return;
        }
    }
}

static void end_close(end *e)
{
    if (e->is_closed)
        return;
    e->is_closed = true;
    end_unlink(e);
}

static void fin_arrives(world *w, void *object, uint64_t unused, uint64_t unused_too)
{
    end *e = object;

    (void)w;
    (void)unused;
    (void)unused_too;
    if (e->is_closed)
        return;
    e->has_fin = true;
    proc_wake(e->proc);
}

static void fin_arrives_if_whole(world *w, void *object, uint64_t a, uint64_t b)
{
    if (!((end *)object)->conn->is_cut)
        fin_arrives(w, object, a, b);
}

/* The other side reads the end behind what was sent. */
static void send_fin(end *from)
{
    end *to = from->other;
    world *w = from->proc->w;
    uint64_t at = proc_local(from->proc);

    if (at == KVX_NEVER || from->conn->is_cut || to->is_closed)
        return;
    at += network_delay(w);
    to->arrival = at > to->arrival ? at : to->arrival + 1;
    world_at(w, to->arrival, fin_arrives_if_whole, to, 0, 0);
}

void network_close(node *n, kvx_link_id link)
{
    end *e = network_find(n, link);

    if (e == NULL)
        return;
    WORLD_LOG(n->proc->w, n->proc->name, "closes link %llu", (unsigned long long)link);
    watch_link_closed(e);
    end_close(e);
    send_fin(e);
}

void network_cut(conn *c, bool is_silent)
{
    world *w = c->dialer.proc->w;
    end *ends[2] = { &c->dialer, &c->owner };

    if (c->is_cut)
        return;
    c->is_cut = true;
    WORLD_LOG(w, "net", "link %llu/%llu is cut%s", (unsigned long long)c->dialer.link,
            (unsigned long long)c->owner.link, is_silent ? ", silently" : "");
    for (uint32_t i = 0; i < 2 && !is_silent; i++) {
        uint64_t late = world_chance(w, 300) ? world_span(w, w->settings.peer_timeout_ns) : 0;
        world_at(w, w->t + network_delay(w) + late, fin_arrives, ends[i], 0, 0);
    }
}

void network_cut_any(world *w, bool is_silent)
{
    uint64_t live = 0;

    for (conn *c = w->conns; c != NULL; c = c->next)
        live += !c->is_cut && !c->dialer.is_closed;
    uint64_t which = world_below(w, live);
    for (conn *c = w->conns; c != NULL; c = c->next) {
        if (c->is_cut || c->dialer.is_closed || which-- > 0)
            continue;
        network_cut(c, is_silent);
        return;
    }
}

void network_cut_all(proc *p, bool is_silent)
{
    for (conn *c = p->w->conns; c != NULL; c = c->next) {
        if (c->dialer.proc != p && c->owner.proc != p)
            continue;
        if (c->dialer.proc == p)
            end_close(&c->dialer);
        if (c->owner.proc == p)
            end_close(&c->owner);
        network_cut(c, is_silent);
    }
}

/* --- dialling ---------------------------------------------------------------------------------- */

static void end_init(end *e, conn *c, proc *p, end *other)
{
    e->conn = c;
    e->proc = p;
    e->other = other;
    e->last = &e->first;
    e->link = ++p->w->link_count;
    e->next = p->ends;
    p->ends = e;
}

static void dialed(node *n, uint64_t now, void *object, uint64_t peer)
{
    end *e = object;

    n->now = now;
    if (e == NULL) {
        kvx_session_dial_failed(n->session, peer, KVX_UNREACHABLE, "nobody listens", now);
    } else {
        e->node = n;
        kvx_session_dialed(n->session, peer, e->link, now);
    }
    node_called(n);
}

typedef struct dial {
    node *node;
    uint64_t life;
    uint64_t peer;
    proc *target;
} dial;

static void dial_arrives(world *w, void *object, uint64_t unused, uint64_t unused_too)
{
    dial *d = object;
    end *e = NULL;

    (void)unused;
    (void)unused_too;
    if (d->node->life != d->life || d->node->is_over)
        return;
    if (d->target != NULL && !d->target->is_dead && d->target->is_listening) {
        conn *c = world_take(w, sizeof(*c));
        end_init(&c->dialer, c, d->node->proc, &c->owner);
        end_init(&c->owner, c, d->target, &c->dialer);
        c->next = w->conns;
        w->conns = c;
        e = &c->dialer;
    }
    proc_command(d->node, dialed, e, d->peer);
}

void network_dial(node *n, uint64_t peer, const char *address)
{
    world *w = n->proc->w;
    dial *d = world_take(w, sizeof(*d));
    uint64_t at = proc_local(n->proc);

    *d = (dial){ n, n->life, peer, NULL };
    for (uint32_t i = 0; i < w->proc_count; i++) {
        if (strcmp(w->procs[i].name, address) == 0)
            d->target = &w->procs[i];
    }
    if (at != KVX_NEVER)
        world_at(w, at + network_delay(w), dial_arrives, d, 0, 0);
}

/* --- frames ------------------------------------------------------------------------------------- */

static void frame_arrives(world *w, void *object, uint64_t unused, uint64_t unused_too)
{
    frame *f = object;
    end *e = f->to;

    (void)w;
    (void)unused;
    (void)unused_too;
    if (e->conn->is_cut || e->is_closed)
        return;
    *e->last = f;
    e->last = &f->next;
    proc_wake(e->proc);
}

void network_send(node *n, kvx_link_id link, const kvx_message *message)
{
    world *w = n->proc->w;
    end *e = network_find(n, link);
    uint64_t at = proc_local(n->proc);

    if (e == NULL)
        return;
    kvx_buffer_reset(&w->encode);
    if (kvx_wire_encode(message, &w->encode) != KVX_OK) {
        watch_broken(w, "I19", "%s cannot be encoded", kvx_message_name(message->type));
        return;
    }
    watch_sent(n, e, message);
    if (at == KVX_NEVER || e->conn->is_cut || e->other->is_closed)
        return;
    uint32_t length = (uint32_t)kvx_buffer_length(&w->encode);
    frame *f = world_take(w, sizeof(*f) + length);
    f->to = e->other;
    f->type = message->type;
    f->length = length;
    memcpy(f->bytes, w->encode.data + w->encode.start, length);
    at += network_delay(w);
    e->other->arrival = at > e->other->arrival ? at : e->other->arrival + 1;
    world_at(w, e->other->arrival, frame_arrives, f, 0, 0);
}

static node *node_wanted(const end *e, const kvx_hello *hello)
{
    proc *p = e->proc;

    return &p->nodes[hello->rank_wanted < p->node_count ? hello->rank_wanted : 0];
}

static void accept_hello(end *e, kvx_message *message, uint64_t now)
{
    if (message->type != KVX_MESSAGE_HELLO) {
        watch_broken(e->proc->w, "I19", "%s is the first message", kvx_message_name(message->type));
        return;
    }
    e->node = node_wanted(e, message->hello_in);
    e->node->now = now;
    e->is_up = true;
    kvx_session_accepted(e->node->session, e->link, message->hello_in, now);
    node_called(e->node);
}

void network_read(end *e, uint64_t now)
{
    frame *f = e->first;
    kvx_message message;
    uint32_t length = 0;

    e->first = f->next;
    if (e->first == NULL)
        e->last = &e->first;
    if (kvx_wire_frame_length(f->bytes, f->length, KVX_WIRE_FRAME_MAX, &length) != KVX_OK ||
            length != f->length || kvx_wire_decode(f->bytes, length, &message) != KVX_OK) {
        watch_broken(e->proc->w, "I19", "a frame of type %u does not decode", f->type);
        return;
    }
    if (e->node == NULL) {
        accept_hello(e, &message, now);
        return;
    }
    e->node->now = now;
    if (message.type == KVX_MESSAGE_WELCOME)
        e->is_up = true;
    watch_arrived(e->node, e, &message);
    kvx_session_message(e->node->session, e->link, &message, now);
    node_called(e->node);
}

void network_idle(end *e, uint64_t now)
{
    node *n = e->node;

    e->is_suspect = false;
    n->now = now;
    kvx_session_link_idle(n->session, e->link, now);
    node_called(n);
}

void network_read_end(end *e, uint64_t now)
{
    node *n = e->node;

    end_close(e);
    WORLD_LOG(e->proc->w, e->proc->name, "sees link %llu lost", (unsigned long long)e->link);
    if (n == NULL || n->is_over)
        return;
    watch_link_closed(e);
    n->now = now;
    kvx_session_link_lost(n->session, e->link, KVX_PEER_LOST, now);
    node_called(n);
}

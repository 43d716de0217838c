/* SPDX-License-Identifier: Apache-2.0 */
#include "pair/verify.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#define THREADS_MAX 8
/* Pages between two looks at whether to stop. */
#define SLICE_PAGES 64

typedef struct job_queue {
    verify_job *first;
    verify_job **end;
} job_queue;

struct page_verifier {
    const kv_store *store;
    pthread_mutex_t lock; /* of the two queues */
    pthread_cond_t given;
    job_queue todo;
    job_queue done;
    atomic_bool is_stopping; /* set under the lock; slices read it without, as a hint */
    unsigned thread_count;
    pthread_t threads[THREADS_MAX];
};

static void queue_init(job_queue *queue)
{
    queue->first = NULL;
    queue->end = &queue->first;
}

static void queue_put(job_queue *queue, verify_job *job)
{
    job->next = NULL;
    *queue->end = job;
    queue->end = &job->next;
}

static verify_job *queue_get(job_queue *queue)
{
    verify_job *job = queue->first;
    if (job == NULL)
        return NULL;
    queue->first = job->next;
    if (queue->first == NULL)
        queue->end = &queue->first;
    return job;
}

static void job_run(page_verifier *verifier, verify_job *job)
{
    store_range range = { .request = job->request, .table = job->table };
    job->found = (store_mismatch){ 0 };
    while (range.first < job->table->count && !atomic_load(&verifier->is_stopping)) {
        const uint32_t left = job->table->count - range.first;
        range.count = left < SLICE_PAGES ? left : SLICE_PAGES;
        store_verify(verifier->store, &range, &job->found);
        range.first += range.count;
    }
}

static void *verifier_main(void *arg)
{
    page_verifier *const self = arg;
    (void)pthread_mutex_lock(&self->lock);
    while (!atomic_load(&self->is_stopping)) {
        verify_job *job = queue_get(&self->todo);
        if (job == NULL) {
            (void)pthread_cond_wait(&self->given, &self->lock);
            continue;
        }
        (void)pthread_mutex_unlock(&self->lock);
        job_run(self, job);
        (void)pthread_mutex_lock(&self->lock);
        queue_put(&self->done, job);
    }
    (void)pthread_mutex_unlock(&self->lock);
    return NULL;
}

/* Half of the processors: the other half moves the bytes. */
static unsigned threads_wanted(void)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN) / 2;
    if (processors < 1)
        return 1;
    return processors > THREADS_MAX ? THREADS_MAX : (unsigned)processors;
}

page_verifier *verifier_start(const kv_store *store)
{
    page_verifier *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return NULL;
    made->store = store;
    queue_init(&made->todo);
    queue_init(&made->done);
    (void)pthread_mutex_init(&made->lock, NULL);
    (void)pthread_cond_init(&made->given, NULL);

    const unsigned wanted = threads_wanted();
    while (made->thread_count < wanted &&
            pthread_create(&made->threads[made->thread_count], NULL, verifier_main, made) == 0)
        made->thread_count++;
    if (made->thread_count == 0)
        verifier_stop(&made);
    return made;
}

void verifier_give(page_verifier *verifier, verify_job *job)
{
    (void)pthread_mutex_lock(&verifier->lock);
    queue_put(&verifier->todo, job);
    (void)pthread_cond_signal(&verifier->given);
    (void)pthread_mutex_unlock(&verifier->lock);
}

verify_job *verifier_take(page_verifier *verifier)
{
    (void)pthread_mutex_lock(&verifier->lock);
    verify_job *job = queue_get(&verifier->done);
    (void)pthread_mutex_unlock(&verifier->lock);
    return job;
}

void verifier_stop(page_verifier **verifier)
{
    struct page_verifier *const self = *verifier;
    if (self == NULL)
        return;
    (void)pthread_mutex_lock(&self->lock);
    atomic_store(&self->is_stopping, true);
    (void)pthread_cond_broadcast(&self->given);
    (void)pthread_mutex_unlock(&self->lock);
    for (unsigned i = 0; i < self->thread_count; i++)
        (void)pthread_join(self->threads[i], NULL);
    (void)pthread_cond_destroy(&self->given);
    (void)pthread_mutex_destroy(&self->lock);
    free(self);
    *verifier = NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/book.h"

#include <stdlib.h>

kvx_status kvx_book_init(kvx_book *book, uint32_t page_count)
{
    kvx_bitmap pulled = { 0 };

    KVX_TRY(kvx_bitmap_init(&pulled, page_count));
    /* One more, so that an empty book is not mistaken for a lack of memory. */
    uint32_t *published = calloc((size_t)page_count + 1, sizeof(*published));
    if (published == NULL) {
        kvx_bitmap_fini(&pulled);
        return KVX_NO_MEMORY;
    }
    *book = (kvx_book){ .page_count = page_count, .published = published, .pulled = pulled };
    return KVX_OK;
}

void kvx_book_fini(kvx_book *book)
{
    kvx_bitmap_fini(&book->pulled);
    free(book->published);
    *book = (kvx_book){ 0 };
}

/* A page that comes twice finds its own bit set the second time. */
static kvx_status pull_page(kvx_book *book, kvx_page page)
{
    KVX_ENSURE(page < book->page_count, KVX_INVALID);
    KVX_ENSURE(!kvx_bitmap_test(&book->pulled, page), KVX_BUSY);
    KVX_ENSURE(book->published[page] == 0, KVX_BUSY);
    kvx_bitmap_set(&book->pulled, page);
    return KVX_OK;
}

kvx_status kvx_book_pull(kvx_book *book, const kvx_page *pages, uint32_t count, kvx_page *bad_out)
{
    for (uint32_t i = 0; i < count; i++) {
        const kvx_status st = pull_page(book, pages[i]);
        if (st != KVX_OK) {
            kvx_book_unpull(book, pages, i);
            *bad_out = pages[i];
            return st;
        }
    }
    return KVX_OK;
}

void kvx_book_unpull(kvx_book *book, const kvx_page *pages, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        kvx_bitmap_clear(&book->pulled, pages[i]);
}

/* Count the pages of one run; *done_out says how many were counted when a page is refused. */
static kvx_status publish_run(kvx_book *book, const kvx_page_run *run, uint32_t *done_out)
{
    *done_out = 0;
    KVX_ENSURE(run->count > 0 && run->first < book->page_count, KVX_INVALID);
    for (uint32_t i = 0; i < run->count; i++) {
        KVX_ENSURE(i < book->page_count - run->first, KVX_INVALID);
        const kvx_page page = run->first + i;
        KVX_ENSURE(!kvx_bitmap_test(&book->pulled, page), KVX_BUSY);
        KVX_ENSURE(book->published[page] < UINT32_MAX, KVX_BUSY);
        book->published[page]++;
        *done_out = i + 1;
    }
    return KVX_OK;
}

kvx_status kvx_book_publish(
        kvx_book *book, const kvx_page_run *runs, uint32_t count, kvx_page *bad_out)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t done = 0;
        const kvx_status st = publish_run(book, &runs[i], &done);
        if (st != KVX_OK) {
            kvx_book_unpublish(book, runs, i);
            kvx_book_unpublish(book, &(kvx_page_run){ runs[i].first, done }, 1);
            *bad_out = runs[i].first + done;
            return st;
        }
    }
    return KVX_OK;
}

void kvx_book_unpublish(kvx_book *book, const kvx_page_run *runs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < runs[i].count; j++)
            book->published[runs[i].first + j]--;
}

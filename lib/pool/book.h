/* SPDX-License-Identifier: Apache-2.0 */
/* The busy book: which page is in a live publication, and which belongs to a pull. By page
 * number, per component. Publications count (they share prefixes); a pull holds its page alone.
 * Pure; the owner of the book locks. */
#ifndef KVX_POOL_BOOK_H
#define KVX_POOL_BOOK_H

#include "base/bitmap.h"
#include "base/check.h"
#include "kvx/layout.h"

typedef struct kvx_book {
    uint32_t page_count;
    uint32_t *published; /* live publications that hold the page */
    kvx_bitmap pulled;
} kvx_book;

KVX_CHECKED kvx_status kvx_book_init(kvx_book *book, uint32_t page_count);
void kvx_book_fini(kvx_book *book);

/* Take pages for a pull, in order, all or none. KVX_BUSY: *bad_out is in a pull (or twice in the
 * list) or published. KVX_INVALID: *bad_out is not in the pool. */
KVX_CHECKED kvx_status kvx_book_pull(
        kvx_book *book, const kvx_page *pages, uint32_t count, kvx_page *bad_out);
void kvx_book_unpull(kvx_book *book, const kvx_page *pages, uint32_t count);

/* Count runs into a publication, all or none. KVX_BUSY: *bad_out is the target of a pull.
 * KVX_INVALID: *bad_out is not in the pool, or a run is empty. The same page may come twice. */
KVX_CHECKED kvx_status kvx_book_publish(
        kvx_book *book, const kvx_page_run *runs, uint32_t count, kvx_page *bad_out);
void kvx_book_unpublish(kvx_book *book, const kvx_page_run *runs, uint32_t count);

#endif

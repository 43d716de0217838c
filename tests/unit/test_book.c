/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include <string.h>

#include "pool/book.h"

#include "support/seed.h"

enum { PAGES = 100 };

static kvx_book book;

static void make_book(void)
{
    cr_assert_eq(kvx_book_init(&book, PAGES), KVX_OK);
}

static void end_book(void)
{
    kvx_book_fini(&book);
    cr_expect_null(book.published);
}

TestSuite(book, .init = make_book, .fini = end_book);

Test(book, a_page_is_in_one_pull_at_a_time)
{
    static const kvx_page first[] = { 3, 99, 0 };
    static const kvx_page second[] = { 4, 99 };
    kvx_page bad = 7;

    cr_expect_eq(kvx_book_pull(&book, first, 3, &bad), KVX_OK);
    cr_expect_eq(bad, 7u);
    cr_expect_eq(kvx_book_pull(&book, second, 2, &bad), KVX_BUSY);
    cr_expect_eq(bad, 99u);
    kvx_book_unpull(&book, first, 3);
    cr_expect_eq(kvx_book_pull(&book, second, 2, &bad), KVX_OK);
}

Test(book, a_refused_pull_takes_no_page)
{
    static const kvx_page twice[] = { 5, 6, 7, 6 };
    static const kvx_page outside[] = { 5, 6, PAGES };
    kvx_page bad = 0;

    cr_expect_eq(kvx_book_pull(&book, twice, 4, &bad), KVX_BUSY);
    cr_expect_eq(bad, 6u);
    cr_expect_eq(kvx_book_pull(&book, outside, 3, &bad), KVX_INVALID);
    cr_expect_eq(bad, (kvx_page)PAGES);
    cr_expect_eq(kvx_bitmap_count(&book.pulled), (size_t)0);
    cr_expect_eq(kvx_book_pull(&book, NULL, 0, &bad), KVX_OK);
}

Test(book, a_page_may_be_in_many_publications)
{
    static const kvx_page_run runs[] = { { 10, 5 }, { 12, 1 }, { 99, 1 } };
    static const kvx_page page = 12;
    kvx_page bad = 0;

    cr_expect_eq(kvx_book_publish(&book, runs, 3, &bad), KVX_OK);
    cr_expect_eq(kvx_book_publish(&book, runs, 1, &bad), KVX_OK);
    cr_expect_eq(book.published[12], 3u);
    kvx_book_unpublish(&book, runs, 3);
    cr_expect_eq(kvx_book_pull(&book, &page, 1, &bad), KVX_BUSY);
    cr_expect_eq(bad, 12u);
    kvx_book_unpublish(&book, runs, 1);
    cr_expect_eq(kvx_book_pull(&book, &page, 1, &bad), KVX_OK);
}

Test(book, a_refused_publication_counts_no_page)
{
    static const struct {
        const char *what;
        kvx_page_run runs[2];
        kvx_status want;
        kvx_page bad;
    } rows[] = {
        { "a page that is pulled", { { 10, 5 }, { 18, 4 } }, KVX_BUSY, 20 },
        { "a run past the end", { { 10, 5 }, { 98, 3 } }, KVX_INVALID, PAGES },
        { "a run beyond the pool", { { 10, 5 }, { PAGES, 1 } }, KVX_INVALID, PAGES },
        { "an empty run", { { 10, 5 }, { 30, 0 } }, KVX_INVALID, 30 },
        { "an endless run", { { 10, 5 }, { 90, UINT32_MAX } }, KVX_INVALID, PAGES },
    };
    static const kvx_page pulled = 20;
    kvx_page bad = 0;

    cr_assert_eq(kvx_book_pull(&book, &pulled, 1, &bad), KVX_OK);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        cr_expect_eq(
                kvx_book_publish(&book, rows[i].runs, 2, &bad), rows[i].want, "%s", rows[i].what);
        cr_expect_eq(bad, rows[i].bad, "%s", rows[i].what);
        for (uint32_t page = 0; page < PAGES; page++)
            cr_expect_eq(book.published[page], 0u, "%s", rows[i].what);
    }
}

Test(book, an_empty_book_knows_no_page)
{
    static const kvx_page page = 0;
    kvx_book empty;
    kvx_page bad = 9;

    cr_assert_eq(kvx_book_init(&empty, 0), KVX_OK);
    cr_expect_eq(kvx_book_pull(&empty, &page, 1, &bad), KVX_INVALID);
    cr_expect_eq(bad, 0u);
    kvx_book_fini(&empty);
}

/* --- property: the book against plain arrays -------------------------------------------------- */

enum { HOLDERS = 12 };

typedef struct holder {
    bool is_pull;
    uint32_t count;
    kvx_page pages[8];
    kvx_page_run runs[4];
} holder;

typedef struct model {
    holder holders[HOLDERS]; /* count 0: free */
    uint32_t pulled[PAGES];
    uint32_t published[PAGES];
} model;

static void model_add(model *m, const holder *h, uint32_t by)
{
    for (uint32_t i = 0; h->is_pull && i < h->count; i++)
        m->pulled[h->pages[i]] += by;
    for (uint32_t i = 0; !h->is_pull && i < h->count; i++)
        for (uint32_t j = 0; j < h->runs[i].count; j++)
            m->published[h->runs[i].first + j] += by;
}

static bool model_is_legal(const model *m)
{
    for (uint32_t page = 0; page < PAGES; page++)
        if (m->pulled[page] > 1 || (m->pulled[page] == 1 && m->published[page] > 0))
            return false;
    return true;
}

static void take(model *m, holder *h, uint64_t *state)
{
    kvx_page bad = PAGES + 1;

    h->is_pull = test_random_below(state, 2) != 0;
    h->count = 1 + (uint32_t)test_random_below(state, 4);
    for (uint32_t i = 0; i < h->count; i++) {
        h->pages[i] = (kvx_page)test_random_below(state, PAGES);
        const uint32_t first = (uint32_t)test_random_below(state, PAGES - 5);
        h->runs[i] = (kvx_page_run){ first, 1 + (uint32_t)test_random_below(state, 5) };
    }
    model_add(m, h, 1);
    const bool is_legal = model_is_legal(m);
    const kvx_status st = h->is_pull ? kvx_book_pull(&book, h->pages, h->count, &bad)
                                     : kvx_book_publish(&book, h->runs, h->count, &bad);
    cr_assert_eq(st, is_legal ? KVX_OK : KVX_BUSY);
    if (is_legal)
        return;
    cr_assert(m->pulled[bad] > 0);
    model_add(m, h, UINT32_MAX);
    h->count = 0;
}

static void give(model *m, holder *h)
{
    if (h->is_pull)
        kvx_book_unpull(&book, h->pages, h->count);
    else
        kvx_book_unpublish(&book, h->runs, h->count);
    model_add(m, h, UINT32_MAX);
    h->count = 0;
}

Test(book, random_pulls_and_publications_agree_with_plain_counting)
{
    uint64_t state = test_seed();
    model m;

    memset(&m, 0, sizeof(m));
    for (uint64_t round = 0; round < test_rounds(20000); round++) {
        holder *h = &m.holders[test_random_below(&state, HOLDERS)];
        if (h->count == 0)
            take(&m, h, &state);
        else
            give(&m, h);
        for (uint32_t page = 0; page < PAGES; page++) {
            cr_assert_eq(kvx_bitmap_test(&book.pulled, page), m.pulled[page] != 0);
            cr_assert_eq(book.published[page], m.published[page]);
        }
    }
}

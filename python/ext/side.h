/* SPDX-License-Identifier: Apache-2.0 */
/* What one side of an operation works on: an array, or one for each rank.
 *
 * Where a part for each rank is meant, a caller passes a list or tuple of
 * arrays, an array with the length of each part, or an array that all ranks
 * share evenly. Elements that weft cannot calculate with travel as bytes, so
 * the library counts in units: such an element is as many as it has bytes,
 * any other is one. */
#ifndef WFP_SIDE_H
#define WFP_SIDE_H

#include "array.h"

typedef struct wfp_side {
    const char *name; /* of the argument, for errors */
    PyObject *given;  /* borrowed for as long as the call lasts */
    wfp_array one;    /* while there is no list */
    wfp_array *many;  /* those of a list */
    weft_part *part;  /* NULL unless parts are told apart; in units */
    uint32_t arrays;  /* open in `many` */
    size_t count;     /* all elements */
    size_t item;      /* bytes of one */
    int dtype;
} wfp_side;

/* Nothing is open yet, so that it may be closed. */
static inline void wfp_side_init(wfp_side *side, const char *name)
{
    side->name = name;
    side->one.owner = NULL;
    side->many = NULL;
    side->part = NULL;
    side->arrays = 0;
}

/* Open one array. Like the other calls: 0, or -1 with an exception set; close
 * the side in either case. */
int wfp_side_open(wfp_side *side, PyObject *object, unsigned access);

/* Open a part for each of `ranks` ranks: a list of arrays, an array that
 * `counts` (NULL or None: nothing) divides, or else an array that is left whole
 * and without parts. */
int wfp_side_open_parts(wfp_side *side, PyObject *object, PyObject *counts,
                        uint32_t ranks, unsigned access);

/* Divide evenly what has no parts yet. */
int wfp_side_divide(wfp_side *side, uint32_t ranks);

/* What the elements of an argument are called; a new reference. */
PyObject *wfp_side_type_name(PyObject *given);

/* Do both have the same elements? */
int wfp_side_same_type(const wfp_side *a, const wfp_side *b);

/* Can its elements be reduced? */
int wfp_side_not_reducible(const wfp_side *side);
static inline int wfp_side_check_reducible(const wfp_side *side)
{
    return side->dtype != WFP_NO_DTYPE ? 0 : wfp_side_not_reducible(side);
}

/* Put results into the caller's arrays, after they were written. The first part
 * is all that the plain case needs. */
int wfp_side_finish_copies(wfp_side *side);
static inline int wfp_side_finish(wfp_side *side)
{
    bool as_it_lies = side->many == NULL &&
                      (side->one.owner == NULL || side->one.back == NULL);

    return as_it_lies ? 0 : wfp_side_finish_copies(side);
}

void wfp_side_close_parts(wfp_side *side);
static inline void wfp_side_close(wfp_side *side)
{
    wfp_array_close(&side->one);
    if (side->part != NULL) {
        wfp_side_close_parts(side);
    }
}

/* Units of one element, and as which type the library sees them. */
static inline size_t wfp_side_unit(const wfp_side *side)
{
    return side->dtype == WFP_NO_DTYPE ? side->item : 1;
}

static inline weft_dtype wfp_side_type(const wfp_side *side)
{
    return side->dtype == WFP_NO_DTYPE ? WEFT_U8 : (weft_dtype)side->dtype;
}

#endif

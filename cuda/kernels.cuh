/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder offer each other. All return 0, a CUDA error
 * number or WF_CUDA_UNSUPPORTED. */
#ifndef WEFT_CUDA_KERNELS_CUH
#define WEFT_CUDA_KERNELS_CUH

#include "rows.cuh"
#include "stream.cuh"

namespace weft
{

/* Line l lies at `at` + l * pitch. */
struct Lines {
    char *at;
    uint64_t pitch;
};

/* The i-th T of a line. */
template <typename T>
__device__ inline T *chunk_at(const Lines &lines, uint64_t line, uint32_t i)
{
    return reinterpret_cast<T *>(lines.at + line * lines.pitch) + i;
}

/* Rows of `table`, by their numbers, and `rows`, by their position in the ids.
 */
struct Move {
    Lines table;
    uint64_t table_bits; /* set where an address of a row has bits set */
    Lines rows;
    bool on_host; /* the table */
    bool gather;  /* from the table, else to it */
    Ids ids;
    Bounds bounds;
    uint64_t n;
    uint64_t width; /* elements */
    cudaStream_t stream;
    uint32_t tune;
};

/* The same type on both sides: `bytes` of each row. */
int copy_rows(const Move &move, uint64_t bytes);
/* The same for a gather of rows that have no 16 aligned bytes; does `move` ask
 * for one that this is made for? */
bool packs(const Move &move, uint64_t bytes);
int pack_rows(const Move &move, uint64_t bytes);
/* Two types of one class. */
int convert_rows(const Move &move, weft_dtype from, weft_dtype to);
/* Add to rows of the table `to`, in no order. */
int add_rows(const Move &move, weft_dtype type, bool on_host);

/* Runs of equal ids: the positions that have the u-th one are
 * positions[starts[u]] up to before positions[starts[u + 1]], in rising order.
 */
struct Runs {
    const uint32_t *positions;
    const uint32_t *starts;
    const uint32_t *count; /* of the runs */
};

/* Chunks of runs that this block has. The grid is that of as many runs as
 * there may be at most. */
__device__ inline uint32_t items_of_runs(const Runs &runs, RowGrid grid,
                                         uint64_t first)
{
    grid.n = *runs.count;
    return first < grid.n ? items_here(grid, first) : 0;
}

/* Add to rows of the table `to`, equal ids in their order; ids stay those of
 * the call. */
int add_runs(const Move &move, weft_dtype type, const Runs &runs);

/* order.cu and runs.cu: first the bytes of scratch that a call takes, then the
 * call. At most kOrderMax ids. */
constexpr uint64_t kOrderMax = (uint64_t(1) << 31) - 1;

/* Addresses of the rows of a table in parts, instead of their numbers; -1:
 * leave it alone. */
size_t addresses_room(uint64_t n);
int find_addresses(const wf_cuda_table &table, const Ids &ids,
                   const Bounds &bounds, uint64_t n, Scratch &scratch,
                   cudaStream_t stream, Ids *out);

/* Of equal ids only the last stays, the others become -1. */
size_t last_ones_room(uint64_t n, uint64_t rows);
int last_ones(const Ids &ids, const Bounds &bounds, uint64_t n,
              Scratch &scratch, cudaStream_t stream, Ids *out);

/* Positions in the order of the pages of 4 KiB that their rows lie in. */
size_t page_order_room(uint64_t n);
int page_order(const Ids &ids, uint64_t rows, uint64_t pitch, uint64_t n,
               Scratch &scratch, cudaStream_t stream, const uint32_t **out);

/* bounds.rows 0: not known. */
size_t runs_room(uint64_t n);
int find_runs(const Ids &ids, const Bounds &bounds, uint64_t n,
              Scratch &scratch, cudaStream_t stream, Runs *out);

int gather(const wf_cuda_rows_call *call);
int scatter(const wf_cuda_rows_call *call);
int scatter_add(const wf_cuda_rows_call *call);
int update(const wf_cuda_update_call *call);
int unique(const wf_cuda_unique_call *call);
int check(void *stream, wf_cuda_bad *out);
int trim(void *stream);

inline int last_error()
{
    return cudaGetLastError();
}

/* Launch all thread blocks of args.grid. */
template <typename Args>
int launch_rows(void (*kernel)(Args), const Args &args, cudaStream_t stream)
{
    const uint64_t blocks = blocks_of(args.grid);

    if (blocks > kBlocksMax) {
        return WF_CUDA_UNSUPPORTED;
    }
    kernel<<<uint32_t(blocks), kThreads, 0, stream>>>(args);
    return last_error();
}

} // namespace weft

#endif

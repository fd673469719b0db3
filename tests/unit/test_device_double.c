/* SPDX-License-Identifier: Apache-2.0 */
/* The double of the CUDA driver is as strict as the driver, so that what passes
 * on it has a chance on a GPU. */
#include "cuda_double/double.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wt_cmocka.h"
#include "wt_proc.h"

#define PAGE ((size_t)4096)

static const wf_driver *cu;
static uint32_t tag;
static unsigned fds_before;

static void begin(wf_double_options options)
{
    wf_cu_context *context = NULL;

    options.tag = tag = (uint32_t)getpid();
    options.granule = PAGE;
    fds_before = wt_count_fds();
    cu = wf_double_start(&options);
    assert_int_equal(cu->cuDevicePrimaryCtxRetain(&context, 0), WF_CU_OK);
    assert_int_equal(cu->cuCtxPushCurrent(context), WF_CU_OK);
}

static void end(void)
{
    wf_double_counts c = wf_double_count();

    assert_int_equal(c.handles, 0);
    assert_int_equal(c.ranges, 0);
    assert_int_equal(c.mappings, 0);
    assert_int_equal(wt_count_fds(), fds_before);
    assert_int_equal(wf_double_used(tag, 0), 0);
}

static wf_cu_prop on(int device)
{
    return (wf_cu_prop){.type = WF_CU_PINNED,
                        .handle_types = WF_CU_POSIX_FD,
                        .location = {WF_CU_LOCATION_DEVICE, device}};
}

static wf_cu_handle make(int device, size_t bytes)
{
    wf_cu_prop prop = on(device);
    wf_cu_handle handle = 0;

    assert_int_equal(cu->cuMemCreate(&handle, bytes, &prop, 0), WF_CU_OK);
    return handle;
}

static wf_cu_address reserve(size_t bytes)
{
    wf_cu_address at = 0;

    assert_int_equal(cu->cuMemAddressReserve(&at, bytes, PAGE, 0, 0), WF_CU_OK);
    return at;
}

static int let(wf_cu_address at, size_t bytes, int device, int access)
{
    wf_cu_grant grant = {{WF_CU_LOCATION_DEVICE, device}, access};

    return cu->cuMemSetAccess(at, bytes, &grant, 1);
}

static void fresh_memory_is_junk_and_closed(void **state)
{
    wf_cu_handle handle;
    wf_cu_address at;
    unsigned char byte = 0;

    (void)state;
    begin((wf_double_options){0});
    handle = make(0, 2 * PAGE);
    at = reserve(3 * PAGE);
    assert_int_equal(cu->cuMemMap(at + PAGE, 2 * PAGE, 0, handle, 0), WF_CU_OK);
    assert_int_equal(cu->cuMemcpyDtoH(&byte, at + PAGE, 1),
                     WF_CU_ILLEGAL_ADDRESS);
    assert_int_equal(let(at + PAGE, 2 * PAGE, 0, WF_CU_READ), WF_CU_OK);
    assert_int_equal(cu->cuMemcpyDtoH(&byte, at + PAGE, 1), WF_CU_OK);
    assert_int_equal(byte, WF_DOUBLE_JUNK);
    assert_int_equal(cu->cuMemcpyHtoD(at + PAGE, &byte, 1),
                     WF_CU_ILLEGAL_ADDRESS);
    assert_int_equal(cu->cuMemcpyDtoH(&byte, at, 1), WF_CU_ILLEGAL_ADDRESS);
    assert_int_equal(cu->cuMemUnmap(at + PAGE, 2 * PAGE), WF_CU_OK);
    assert_int_equal(cu->cuMemAddressFree(at, 3 * PAGE), WF_CU_OK);
    assert_int_equal(cu->cuMemRelease(handle), WF_CU_OK);
    end();
}

static void only_whole_handles_are_mapped_and_unmapped(void **state)
{
    wf_cu_handle handle;
    wf_cu_address at;

    (void)state;
    begin((wf_double_options){0});
    handle = make(0, 2 * PAGE);
    at = reserve(4 * PAGE);
    assert_int_equal(cu->cuMemMap(at, PAGE, 0, handle, 0), WF_CU_INVALID);
    assert_int_equal(cu->cuMemMap(at, 2 * PAGE, PAGE, handle, 0),
                     WF_CU_INVALID);
    assert_int_equal(cu->cuMemMap(at + 3 * PAGE, 2 * PAGE, 0, handle, 0),
                     WF_CU_INVALID);
    assert_int_equal(cu->cuMemMap(at, 2 * PAGE, 0, handle, 0), WF_CU_OK);
    assert_int_equal(cu->cuMemMap(at + PAGE, 2 * PAGE, 0, handle, 0),
                     WF_CU_INVALID);
    assert_int_equal(let(at, PAGE, 0, WF_CU_READ), WF_CU_INVALID);
    assert_int_equal(let(at, 3 * PAGE, 0, WF_CU_READ), WF_CU_INVALID);
    assert_int_equal(cu->cuMemUnmap(at, PAGE), WF_CU_INVALID);
    assert_int_equal(cu->cuMemAddressFree(at, 4 * PAGE), WF_CU_INVALID);
    assert_int_equal(cu->cuMemUnmap(at, 2 * PAGE), WF_CU_OK);
    assert_int_equal(cu->cuMemAddressFree(at, PAGE), WF_CU_INVALID);
    assert_int_equal(cu->cuMemAddressFree(at, 4 * PAGE), WF_CU_OK);
    assert_int_equal(cu->cuMemRelease(handle), WF_CU_OK);
    assert_int_equal(cu->cuMemRelease(handle), WF_CU_INVALID);
    end();
}

static void memory_has_a_limit(void **state)
{
    wf_cu_prop prop = on(0);
    wf_cu_handle a;
    wf_cu_handle b = 0;
    size_t left = 0;
    size_t total = 0;

    (void)state;
    begin((wf_double_options){.devices = 2, .bytes = 4 * PAGE});
    a = make(0, 3 * PAGE);
    assert_int_equal(cu->cuMemGetInfo(&left, &total), WF_CU_OK);
    assert_int_equal(left, PAGE);
    assert_int_equal(total, 4 * PAGE);
    assert_int_equal(cu->cuMemCreate(&b, 2 * PAGE, &prop, 0), WF_CU_NO_MEMORY);
    b = make(1, 2 * PAGE);
    assert_int_equal(cu->cuMemRelease(b), WF_CU_OK);
    b = make(0, PAGE);
    assert_int_equal(cu->cuMemRelease(b), WF_CU_OK);
    assert_int_equal(cu->cuMemRelease(a), WF_CU_OK);
    assert_int_equal(cu->cuMemGetInfo(&left, &total), WF_CU_OK);
    assert_int_equal(left, 4 * PAGE);
    end();
}

/* The child holds it by a mapping alone, then ends without a word. */
static void memory_lasts_while_any_process_has_it(void **state)
{
    wf_cu_handle handle;
    wf_cu_address at;
    int ready[2];
    int go[2];
    char c = 0;
    pid_t child;

    (void)state;
    begin((wf_double_options){0});
    handle = make(0, PAGE);
    at = reserve(PAGE);
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(go), 0);
    child = fork();
    if (child == 0) {
        cu->cuMemMap(at, PAGE, 0, handle, 0);
        cu->cuMemRelease(handle);
        close(go[1]);
        (void)!write(ready[1], &c, 1);
        (void)!read(go[0], &c, 1);
        _exit(0);
    }
    assert_int_equal(read(ready[0], &c, 1), 1);
    assert_int_equal(cu->cuMemRelease(handle), WF_CU_OK);
    assert_int_equal(wf_double_used(tag, 0), PAGE);
    close(go[1]);
    waitpid(child, NULL, 0);
    assert_int_equal(wf_double_used(tag, 0), 0);
    close(go[0]);
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(cu->cuMemAddressFree(at, PAGE), WF_CU_OK);
    end();
}

static void only_memory_of_a_device_is_imported(void **state)
{
    wf_cu_handle handle;
    wf_cu_handle copy = 0;
    wf_cu_prop prop;
    int fd = -1;

    (void)state;
    begin((wf_double_options){0});
    handle = make(0, PAGE);
    assert_int_equal(cu->cuMemImportFromShareableHandle(
                         &copy, (void *)(intptr_t)0, WF_CU_POSIX_FD),
                     WF_CU_INVALID);
    assert_int_equal(
        cu->cuMemExportToShareableHandle(&fd, handle, WF_CU_POSIX_FD, 0),
        WF_CU_OK);
    assert_int_equal(cu->cuMemImportFromShareableHandle(
                         &copy, (void *)(intptr_t)fd, WF_CU_POSIX_FD),
                     WF_CU_OK);
    close(fd);
    assert_int_equal(cu->cuMemGetAllocationPropertiesFromHandle(&prop, copy),
                     WF_CU_OK);
    assert_int_equal(prop.location.id, 0);
    assert_int_equal(wf_double_used(tag, 0), PAGE);
    assert_int_equal(cu->cuMemRelease(handle), WF_CU_OK);
    assert_int_equal(cu->cuMemRelease(copy), WF_CU_OK);
    end();
}

static void access_is_by_device(void **state)
{
    wf_cu_context *one = NULL;
    wf_cu_handle handle;
    wf_cu_address at;
    char c = 0;

    (void)state;
    begin((wf_double_options){.devices = 2});
    assert_int_equal(cu->cuDevicePrimaryCtxRetain(&one, 1), WF_CU_OK);
    handle = make(0, PAGE);
    at = reserve(PAGE);
    assert_int_equal(cu->cuMemMap(at, PAGE, 0, handle, 0), WF_CU_OK);
    assert_int_equal(let(at, PAGE, 0, WF_CU_READWRITE), WF_CU_OK);
    assert_int_equal(cu->cuCtxPushCurrent(one), WF_CU_OK);
    assert_int_equal(cu->cuMemcpyDtoH(&c, at, 1), WF_CU_ILLEGAL_ADDRESS);
    assert_int_equal(let(at, PAGE, 1, WF_CU_READ), WF_CU_OK);
    assert_int_equal(cu->cuMemcpyDtoH(&c, at, 1), WF_CU_OK);
    assert_int_equal(cu->cuMemcpyHtoD(at, &c, 1), WF_CU_ILLEGAL_ADDRESS);
    assert_int_equal(cu->cuCtxPopCurrent(&one), WF_CU_OK);
    assert_int_equal(cu->cuMemcpyHtoD(at, &c, 1), WF_CU_OK);
    assert_int_equal(cu->cuMemUnmap(at, PAGE), WF_CU_OK);
    assert_int_equal(cu->cuMemAddressFree(at, PAGE), WF_CU_OK);
    assert_int_equal(cu->cuMemRelease(handle), WF_CU_OK);
    end();
}

static void host_memory_is_registered_once(void **state)
{
    static char memory[16];
    wf_cu_address seen = 0;

    (void)state;
    begin((wf_double_options){0});
    assert_int_equal(cu->cuMemHostRegister(memory, 16, WF_CU_ALL_CONTEXTS),
                     WF_CU_OK);
    assert_int_equal(cu->cuMemHostRegister(memory + 8, 4, WF_CU_ALL_CONTEXTS),
                     WF_CU_REGISTERED);
    assert_int_equal(cu->cuMemHostGetDevicePointer(&seen, memory, 0), WF_CU_OK);
    assert_int_equal(seen, (uintptr_t)memory);
    assert_int_equal(cu->cuMemHostUnregister(memory), WF_CU_OK);
    assert_int_equal(cu->cuMemHostUnregister(memory), WF_CU_NOT_REGISTERED);
    end();
}

/* What a test of waiting rests on: the double sees who does not wait. */
static void memory_taken_from_a_kernel_is_counted(void **state)
{
    static char memory[16];
    wf_cu_handle handle;
    wf_cu_address at;

    (void)state;
    begin((wf_double_options){.devices = 2});
    handle = make(0, PAGE);
    at = reserve(PAGE);
    assert_int_equal(cu->cuMemMap(at, PAGE, 0, handle, 0), WF_CU_OK);
    wf_double_launch(1);
    assert_int_equal(let(at, PAGE, 0, WF_CU_READWRITE), WF_CU_OK);
    assert_int_equal(let(at, PAGE, 0, 0), WF_CU_OK);
    assert_int_equal(wf_double_count().torn, 0);
    wf_double_launch(0);
    assert_int_equal(let(at, PAGE, 0, WF_CU_READWRITE), WF_CU_OK);
    assert_int_equal(let(at, PAGE, 0, 0), WF_CU_OK);
    assert_int_equal(wf_double_count().torn, 1);
    assert_int_equal(let(at, PAGE, 0, WF_CU_READWRITE), WF_CU_OK);
    assert_int_equal(cu->cuMemUnmap(at, PAGE), WF_CU_OK);
    assert_int_equal(wf_double_count().torn, 2);
    assert_int_equal(cu->cuCtxSynchronize(), WF_CU_OK);
    assert_false(wf_double_busy(0));
    assert_true(wf_double_busy(1));
    assert_int_equal(cu->cuMemHostRegister(memory, 16, WF_CU_ALL_CONTEXTS),
                     WF_CU_OK);
    assert_int_equal(cu->cuMemHostUnregister(memory), WF_CU_OK);
    assert_int_equal(wf_double_count().torn, 3);
    assert_int_equal(cu->cuMemAddressFree(at, PAGE), WF_CU_OK);
    assert_int_equal(cu->cuMemRelease(handle), WF_CU_OK);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fresh_memory_is_junk_and_closed),
        cmocka_unit_test(only_whole_handles_are_mapped_and_unmapped),
        cmocka_unit_test(memory_has_a_limit),
        cmocka_unit_test(memory_lasts_while_any_process_has_it),
        cmocka_unit_test(only_memory_of_a_device_is_imported),
        cmocka_unit_test(access_is_by_device),
        cmocka_unit_test(host_memory_is_registered_once),
        cmocka_unit_test(memory_taken_from_a_kernel_is_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Which devices may touch the memory of a region. */
#include "base/status.h"
#include "region/cuda/state.h"

static weft_status check_reach(const wf_device *device, int owner)
{
    int reaches = 0;
    int error;

    if (device->handle == owner) {
        return WEFT_OK;
    }
    error =
        device->driver->cuDeviceCanAccessPeer(&reaches, device->handle, owner);
    if (error != WF_CU_OK) {
        return wf_driver_fail(device->driver, error, "querying CUDA device %d",
                              device->number);
    }
    return reaches ? WEFT_OK
                   : wf_fail(WEFT_ERR_UNSUPPORTED,
                             "CUDA device %d cannot reach the memory of device "
                             "%d: there is no peer access between them",
                             device->number, owner);
}

static weft_status grant(const wf_device *device, wf_cu_address at,
                         const wf_cuda_object *o, int access)
{
    wf_cu_grant g = {{WF_CU_LOCATION_DEVICE, device->handle}, access};
    weft_status st = check_reach(device, o->owner);
    int error;

    if (st != WEFT_OK) {
        return st;
    }
    error = device->driver->cuMemSetAccess(at, o->bytes, &g, 1);
    return error == WF_CU_OK
               ? WEFT_OK
               : wf_driver_fail(device->driver, error,
                                "granting CUDA device %d access to memory of "
                                "device %d",
                                device->number, o->owner);
}

weft_status wf_cuda_grant_all(const wf_cuda_state *s, wf_cu_address base,
                              const wf_cuda_object *o, int access)
{
    weft_status st = grant(&s->device, base + o->at, o, access);

    for (uint32_t i = 0; i < s->guests && st == WEFT_OK; i++) {
        st = grant(&s->guest[i], base + o->at, o, access);
    }
    return st;
}

/* Only whole objects can be closed. A kernel that was launched before may still
 * be working on their rows. */
weft_status wf_cuda_access(void *state, uint64_t end)
{
    wf_cuda_state *s = state;
    weft_status st = WEFT_OK;

    pthread_mutex_lock(&s->lock);
    for (wf_cuda_object *o = s->objects; o != NULL && st == WEFT_OK;
         o = o->next) {
        bool usable = o->at < end;

        if (usable != o->usable) {
            if (!usable) {
                wf_cuda_wait(s);
            }
            st = wf_cuda_grant_all(s, s->base, o, usable ? WF_CU_READWRITE : 0);
            o->usable = st == WEFT_OK ? usable : o->usable;
        }
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

static bool is_guest(const wf_cuda_state *s, int number)
{
    for (uint32_t i = 0; i < s->guests; i++) {
        if (s->guest[i].number == number) {
            return true;
        }
    }
    return number == s->device.number;
}

/* What was granted before a failure stays granted: it does no harm, and the
 * device is not told the address. */
static weft_status admit(wf_cuda_state *s, const wf_device *guest)
{
    weft_status st = WEFT_OK;

    if (s->guests == WF_CUDA_GUESTS) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "more than %d CUDA devices use a region",
                       WF_CUDA_GUESTS);
    }
    for (const wf_cuda_object *o = s->objects; o != NULL && st == WEFT_OK;
         o = o->next) {
        if (o->usable) {
            st = grant(guest, s->base + o->at, o, WF_CU_READWRITE);
        }
    }
    if (st == WEFT_OK) {
        s->guest[s->guests++] = *guest;
    }
    return st;
}

weft_status wf_cuda_grant(void *state, int32_t device)
{
    wf_cuda_state *s = state;
    wf_device guest = {0};
    int number = 0;
    weft_status st = wf_device_check(&s->device);

    if (st != WEFT_OK) {
        return st;
    }
    st = wf_device_choose(s->driver, device, (uint32_t)s->device.number,
                          &number);
    if (st != WEFT_OK) {
        return st;
    }
    pthread_mutex_lock(&s->lock);
    if (!is_guest(s, number)) {
        st = wf_device_open(s->driver, number, &guest);
        if (st == WEFT_OK) {
            st = admit(s, &guest);
            if (st != WEFT_OK) {
                wf_device_close(&guest);
            }
        }
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

/* A stand-in for the driver's library: three devices, their state fixed here.
 * 0: healthy, with two processes. 1: memory and utilisation not supported. 2: lost. */
#include <string.h>
typedef int ret;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned int gpu, memory; } rates_t;
typedef struct { unsigned int pid; unsigned long long used; unsigned int gi, ci; } process_t;
typedef struct { unsigned int pid; unsigned long long stamp; unsigned int sm, mem, enc, dec; } sample_t;
enum { OK = 0, UNINIT = 1, INVALID = 2, UNSUPPORTED = 3, TOO_SMALL = 7, NOT_FOUND = 6, LOST = 15 };
static int devices[3] = {0, 1, 2};
static int up = 0;
static int number(void *h) { return *(int *)h; }
ret nvmlInitWithFlags(unsigned int f) { (void)f; up = 1; return OK; }
ret nvmlInit_v2(void) { up = 1; return OK; }
ret nvmlShutdown(void) { up = 0; return OK; }
const char *nvmlErrorString(ret r) {
  return r == LOST ? "GPU is lost" : r == UNSUPPORTED ? "Not Supported" : r == INVALID ? "Invalid Argument" : "error";
}
ret nvmlDeviceGetCount_v2(unsigned int *n) { if (!up) return UNINIT; *n = 3; return OK; }
ret nvmlDeviceGetHandleByIndex_v2(unsigned int i, void **h) {
  if (i > 2) return INVALID;
  *h = &devices[i];
  return OK;
}
ret nvmlDeviceGetName(void *h, char *s, unsigned int n) {
  strncpy(s, number(h) == 0 ? "NVIDIA A100-SXM4-80GB" : "Tesla T4", n);
  return OK;
}
ret nvmlDeviceGetUUID(void *h, char *s, unsigned int n) {
  static const char *uuids[] = {"GPU-aa", "GPU-bb", "GPU-cc"};
  strncpy(s, uuids[number(h)], n);
  return OK;
}
ret nvmlDeviceGetMemoryInfo(void *h, memory_t *m) {
  if (number(h) == 1) return UNSUPPORTED;
  if (number(h) == 2) return LOST;
  m->total = 81559ULL << 20; m->used = 3000ULL << 20; m->free = m->total - m->used;
  return OK;
}
ret nvmlDeviceGetUtilizationRates(void *h, rates_t *r) {
  if (number(h) == 1) return UNSUPPORTED;
  if (number(h) == 2) return LOST;
  r->gpu = 87; r->memory = 41;
  return OK;
}
ret nvmlDeviceGetPowerUsage(void *h, unsigned int *p) {
  if (number(h) != 0) return UNSUPPORTED;
  *p = 245500;
  return OK;
}
ret nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned int *n, process_t *out) {
  if (number(h) != 0) { *n = 0; return OK; }
  if (*n < 2) { *n = 2; return TOO_SMALL; }
  *n = 2;
  memset(out, 0, 2 * sizeof(process_t));
  out[0].pid = 101; out[0].used = 2000ULL << 20;
  out[1].pid = 102; out[1].used = ~0ULL; /* not available, as under WDDM or without permission */
  return OK;
}
ret nvmlDeviceGetProcessUtilization(void *h, sample_t *out, unsigned int *n, unsigned long long since) {
  if (number(h) != 0) return UNSUPPORTED;
  if (since >= 2000) return NOT_FOUND;
  if (*n < 3) { *n = 3; return TOO_SMALL; }
  *n = 3;
  memset(out, 0, 3 * sizeof(sample_t));
  out[0].pid = 101; out[0].stamp = 1000; out[0].sm = 40;
  out[1].pid = 101; out[1].stamp = 2000; out[1].sm = 60;
  out[2].pid = 102; out[2].stamp = 1500; out[2].sm = 20;
  return OK;
}

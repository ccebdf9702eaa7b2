// SPDX-License-Identifier: Apache-2.0

// Called by LeakSanitizer at startup. gRPC's resolver (c-ares) leaks a few
// bytes per channel to a host name.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libcares\n";
}

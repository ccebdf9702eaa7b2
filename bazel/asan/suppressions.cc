// LeakSanitizer asks for this at its start. gRPC's resolver (c-ares) loses some
// bytes per channel to a name.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libcares\n";
}

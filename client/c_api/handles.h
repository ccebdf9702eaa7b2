// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_C_API_HANDLES_H_
#define HOLDFAST_CLIENT_C_API_HANDLES_H_

#include <cstdint>
#include <memory>

namespace holdfast::c_api {

// The objects behind the handles of the C API. A handle is a number that is
// never reused, so any value that a caller passes can be looked up safely: a
// handle that was closed, is of another kind, or belongs to the process that
// this one was forked from, is not found.
//
// Thread-safe.
class Handles {
 public:
  enum class Kind : uintptr_t { kCluster = 1, kLoop = 2, kValues = 3 };

  // Must be called before anything is created that does not survive a fork. In
  // a child that is forked afterwards, IsForkedChild() is true, and there are
  // no handles.
  static void Begin();
  static bool IsForkedChild();

  static void* Add(Kind kind, std::shared_ptr<void> object);
  // Returns the object of a handle; null if there is no such handle of this
  // kind.
  static std::shared_ptr<void> Find(Kind kind, const void* handle);
  // Returns what Find returns, and removes the handle.
  static std::shared_ptr<void> Remove(Kind kind, const void* handle);
};

}  // namespace holdfast::c_api

#endif  // HOLDFAST_CLIENT_C_API_HANDLES_H_

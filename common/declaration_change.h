// How what a worker declares differs from the declaration that stands.
//
// Pure functions; safe from any thread.
#ifndef HOLDFAST_COMMON_DECLARATION_CHANGE_H_
#define HOLDFAST_COMMON_DECLARATION_CHANGE_H_

#include <string>

#include "proto/cluster.pb.h"

namespace holdfast {

enum class Declarer {
  // Declares everything, its first values among it.
  kChief,
  // The first values are the chief's, and what this one leaves out stands with
  // its default.
  kOther,
};

// The first difference, as "optimizers[0].learning_rate: 0.1 -> 0.2" from what
// stands to what is declared. Empty: there is none.
std::string FirstChange(const proto::Declaration& stands,
                        const proto::Declaration& declared, Declarer declarer);

// What can be done about one, for the end of an error.
std::string WaysOutOfChange(const proto::Declaration& stands);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DECLARATION_CHANGE_H_

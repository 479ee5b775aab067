// Package annotate says in the error of a function what the function was doing.
//
// It adds nothing to a nil error, and does not log.
package annotate

import "fmt"

// Error wraps *err, unless it is nil, in the formatted text and a colon. A function with the named result err defers it
// first, so that it sees the errors of all later deferred calls:
//
//	defer annotate.Error(&err, "open %s", name)
func Error(err *error, format string, args ...any) {
	if *err != nil {
		*err = fmt.Errorf(format+": %w", append(args, *err)...)
	}
}

// Package settings reads what the user has set: from files, the environment
// and flags, in one fixed order.
//
// It promises that a file it cannot read whole is named in one error and never
// taken for an empty one, that the files of a project can only forbid, and that
// whatever was ignored or brought into its bounds is said in a [Note]. It does not
// judge permission rules.
package settings

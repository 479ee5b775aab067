// Package settings reads the user's settings from files, the environment and flags,
// in one fixed order.
//
// A file that cannot be read completely is one error that names it, never an empty
// file. The files of an untrusted project can only forbid. A [Note] reports every value that was
// ignored or clamped. The package does not evaluate permission rules.
package settings

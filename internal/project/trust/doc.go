// Package trust stores which folders the user trusts, and lists what the files of a
// folder could make Drover execute or allow.
//
// Trust is given to one folder with exactly the files that were shown, by their
// digest. When one of them is changed, added or removed, the folder loses its
// trust. Trust does not extend to a repository or worktree below the folder. A
// file that cannot be checked is never trusted. The package executes nothing.
package trust

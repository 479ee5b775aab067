// Package trust remembers which folders the user trusts, and tells what the
// files of a folder could make Drover execute or allow.
//
// Trust is given to one folder with exactly the files that were shown: a
// digest of them is kept, and when one changes, comes or goes, the folder is
// not trusted any more. It holds for that folder alone; a repository or a
// worktree below it is another one. A file that cannot be looked at is never
// trusted. The package decides nothing beyond that, and executes nothing.
package trust

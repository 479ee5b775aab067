// Package folder moves the folder of a task to another machine and brings back the changes made there.
//
// [Pack] reads a checkout: its commit, the uncommitted changes and the untracked files that were
// chosen become a chain of commits, of which a pack holds what the other side lacks. The pack is
// cut into parts, which a [Store] carries by their digests. A [Cache] on the other machine keeps
// the objects of repositories and makes a work tree from them, in which git status shows the same as
// at home. [Cache.Collect] packs the changes made there, and [Receive] stores it under a ref
// of the first repository.
//
// A folder without git travels by the same calls, as a commit of ours; [ReceivePlain] writes what comes back to a new
// folder.
//
// It promises that Pack and Receive leave the index, the work tree, HEAD and the branches of the
// user's repository as they are, and that Pack writes nothing to it. A transfer that was
// interrupted and is repeated sends only the parts that the store does not have. Everything from
// the other side is checked before git works with it: digests, sizes of packed and unpacked
// objects, their form, their connections, and the number and size of files. No hook, filter or
// other program of a repository's configuration runs.
//
// It does not know tasks, sessions or how parts travel, never fetches submodules or files of Git
// LFS, and merges nothing.
package folder

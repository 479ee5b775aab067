package control

import "github.com/drover-dev/drover/task"

// Bounds of a [Diff]. A file whose lines do not fit is listed without them, and can be asked
// for by its path.
const (
	MaxDiffFiles = 5000
	MaxDiffLines = 20_000 // of all hunks of an answer
	MaxDiffLine  = 4 << 10
	MaxPatch     = 8 << 20
)

// DiffRequest asks for the changes of a task in its worktree.
type DiffRequest struct {
	Ref   string   `json:"ref"`
	Paths []string `json:"paths,omitempty"` // of files and folders from the top of the repository; none: all
	Stat  bool     `json:"stat,omitempty"`  // the files without their hunks
	Patch bool     `json:"patch,omitempty"` // the patch instead of hunks
}

// CommentRequest sends comments on lines of a diff to the agent of a task, as one message.
type CommentRequest struct {
	Ref      string        `json:"ref"`
	Digest   string        `json:"digest,omitempty"` // of the diff that was shown; empty: the change as it is now
	Comments []LineComment `json:"comments"`
	Env      []string      `json:"env,omitempty"` // as in SendRequest
}

// LineComment is what the user says about a line.
type LineComment struct {
	Path string `json:"path"`
	Line int    `json:"line,omitempty"` // from 1; 0: the whole file
	Old  bool   `json:"old,omitempty"`  // the line is one of the file before the change
	Text string `json:"text"`
}

// MaxComments limits the comments of a request.
const MaxComments = 200

// Diff is what a task has changed against the commit that its worktree began at, with what is
// not committed.
type Diff struct {
	Task    task.ID `json:"task_id"`
	Repo    string  `json:"repository"`         // the folder
	Path    string  `json:"worktree,omitempty"` // empty: it is gone
	Branch  string  `json:"branch"`
	From    string  `json:"from"` // worktree, branch or rescue
	Base    string  `json:"base_commit"`
	Head    string  `json:"head_commit"` // the last commit of the agent
	Clean   bool    `json:"committed"`   // nothing is uncommitted
	Digest  string  `json:"digest"`      // of all changed files: comments on lines name it
	Added   int     `json:"lines_added"`
	Removed int     `json:"lines_removed"`

	Files []DiffFile `json:"files"`
	Count int        `json:"file_count"`      // of all changed files, also those beyond the limit
	Patch []byte     `json:"patch,omitempty"` // base64 in JSON
	Cut   bool       `json:"truncated,omitempty"`
}

// DiffFile is a changed file.
type DiffFile struct {
	Path    string     `json:"path"`
	OldPath string     `json:"old_path,omitempty"` // of a renamed file
	Status  string     `json:"status"`             // added, deleted, modified, renamed or retyped
	Binary  bool       `json:"binary,omitempty"`
	Added   int        `json:"lines_added"`
	Removed int        `json:"lines_removed"`
	Hunks   []DiffHunk `json:"hunks,omitempty"`
	Cut     bool       `json:"truncated,omitempty"` // it has more lines than are here
}

// DiffHunk is a changed place of a file.
type DiffHunk struct {
	OldStart int        `json:"old_start"`
	OldLines int        `json:"old_lines"`
	NewStart int        `json:"new_start"`
	NewLines int        `json:"new_lines"`
	Section  string     `json:"section,omitempty"` // the line that git shows after the numbers
	Lines    []DiffLine `json:"lines"`
}

// DiffLine is a line of a hunk. Old and New are its numbers, from 1; 0: it is not on that side.
type DiffLine struct {
	Kind string `json:"kind"` // " ", "+" or "-"
	Old  int    `json:"old,omitempty"`
	New  int    `json:"new,omitempty"`
	Text string `json:"text"`
}

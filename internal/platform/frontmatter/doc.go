// Package frontmatter reads Markdown files that begin with a block of YAML
// between two lines of dashes, such as definitions of agents and SKILL.md.
//
// It promises that a tolerant reader reads a file which strict YAML refuses, with a
// [Warning] that names the line and the reason; that anchors and aliases stay text
// and are never expanded; and that a file beyond the bounds is refused before work
// is spent on it. It does no I/O, does not know the meaning of keys, and escapes
// nothing: the code that shows a value does.
package frontmatter

// Package excerpt makes text of unknown origin short and harmless before a
// model or a terminal sees it.
//
// It promises that cuts fall between code points, that no control byte other
// than tab and newline survives, and that what cannot be seen is shown marked,
// as <U+202E>. It does no I/O and keeps no state; it is no guard against text
// that lies in plain words.
package excerpt

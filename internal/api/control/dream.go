package control

// DreamRequest is a consolidation of memory, started by hand. One is under way for a
// project at a time; a second is a [Conflict].
type DreamRequest struct{}

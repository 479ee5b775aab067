package control

// DreamRequest is a consolidation of memory, started by hand. Only one runs for a project at a
// time; a second is a [Conflict].
type DreamRequest struct{}

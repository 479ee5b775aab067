package control

// WorkflowRequest is a workflow, as docs/workflows.md describes it.
type WorkflowRequest struct {
	File   string            `json:"file"` // absolute
	Params map[string]string `json:"params,omitempty"`
}

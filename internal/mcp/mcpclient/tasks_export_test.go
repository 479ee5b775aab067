package mcpclient

import "encoding/json"

// ReadTaskV1 reads a task as the wire has it.
func ReadTaskV1(raw []byte) (TaskState, bool) {
	var w wireTask
	err := json.Unmarshal(raw, &w)
	return w.state(), err == nil && w.TaskID != ""
}

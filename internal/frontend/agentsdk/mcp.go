package agentsdk

// MCPServer is a server as system/init tells of it.
type MCPServer struct {
	Name   string `json:"name"`
	Status string `json:"status"` // connected, pending or failed
}

package sandboxes

import (
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/engine/netproxy"
)

// What this package itself refuses says what would allow it; what the proxy refuses is tested there.
func TestRemedies(t *testing.T) {
	n := &network{clients: map[string]*client{}}
	c, _ := n.join("curl x", unattended)
	for name, r := range map[string]netproxy.Request{
		"setting sandbox.domains does not name it (add evil.example there)": {User: "c1", Host: "evil.example", Port: 443},
		"(start it again)": {User: "c7", Host: "evil.example", Port: 443},
	} {
		if err := n.allow(t.Context(), r); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not say %q", err, name)
		}
	}
	if len(c.decided) != 1 {
		t.Errorf("decided %v", c.decided)
	}
}

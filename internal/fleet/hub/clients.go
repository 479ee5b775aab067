package hub

import (
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/fleet/link"
)

// Check implements [server.Authentication].
func (h *Hub) Check(c server.ClientAuthentication) bool {
	o := c.GetOpts()
	t, worker, err := h.members.Recognize(o.Token, o.Name, o.Nkey, o.Sig, c.GetNonce())
	if err != nil {
		h.log(fmt.Sprintf("%s was refused: %.300q: %v", c.RemoteAddress(), o.Name, err))
		return false
	}
	account, err := h.account(t.Project)
	if err != nil {
		h.log(err.Error())
		return false
	}
	user := &server.User{Username: o.Name, Account: account}
	if t.Role == link.RoleWorker {
		user.Permissions = ofWorker(worker)
	}
	c.RegisterUser(user)
	return true
}

// callTime is how long a worker may take to answer a call.
const callTime = time.Minute

// ofWorker returns the subjects that a worker may use: offers, which have no secrets, its commands, and nothing of the
// claims of others.
func ofWorker(name string) *server.Permissions {
	inbox := "_INBOX_" + link.RoleWorker + "_" + name + ".>"
	consumer := link.ConsumerOf(name)
	return &server.Permissions{
		Publish: &server.SubjectPermission{Allow: []string{
			fleetwire.AskHub,
			"drover.session.*.*." + name,
			"drover.event.*." + name + ".*",
			"$KV." + fleetwire.Workers + "." + name,
			fleetwire.PartOf("*", name),
			"$JS.API.STREAM.INFO.KV_" + fleetwire.Workers,
			"$JS.API.DIRECT.GET.KV_" + fleetwire.Workers + ".$KV." + fleetwire.Workers + "." + name,
			"$JS.API.CONSUMER.*." + fleetwire.Offers + ".>", "$JS.API.CONSUMER.MSG.NEXT." + fleetwire.Offers + ".*",
			"$JS.ACK." + fleetwire.Offers + ".>",
			"$JS.API.CONSUMER.CREATE." + fleetwire.Commands + "." + consumer + ".drover.worker." + name + ".>",
			"$JS.API.CONSUMER.INFO." + fleetwire.Commands + "." + consumer,
			"$JS.API.CONSUMER.MSG.NEXT." + fleetwire.Commands + "." + consumer,
			"$JS.ACK." + fleetwire.Commands + "." + consumer + ".>",
		}},
		Subscribe: &server.SubjectPermission{Allow: []string{inbox, fleetwire.CallTo(name, "*")}},
		Response:  &server.ResponsePermission{MaxMsgs: 1, Expires: callTime}, // to a call
	}
}

package agent

import (
	"time"

	"github.com/pandovm/pando/internal/agent/http2"
	"github.com/pandovm/pando/internal/link"
)

// intake is the reading end of the port: it tells preambles from the bytes of a
// session, wherever the stream was cut.
//
//	          token                record               preface
//	scanning ───────▶ preamble ───────────▶ confirmed ───────────▶ established
//	    ▲                │ malformed            │ other bytes
//	    └────────────────┴──────────────────────┘
//
// A token that is good in the present state leads to preamble from every state,
// and a hang-up to scanning.
type intake struct {
	to     *Server
	state  intakeState
	finder link.Finder
	body   link.Body
	// arrived is when the token was seen.
	arrived time.Time
	// opener is the token of the preamble that is being read. opened is that of
	// the session, kept good so that a host that was cut off before it saw the
	// confirmation may try again; next is the one that the epoch ordered.
	opener, opened, next link.Token
	// preface counts its bytes seen so far.
	preface int
	// held is the end of what arrived that may be the beginning of a token, kept
	// from the session until that is known.
	held []byte
}

type intakeState int

const (
	scanning intakeState = iota
	preamble
	confirmed
	established
)

// minHeld is how much of a token must have arrived for it to be kept from the
// session. Fewer bytes occur by chance, and a session that waits for them would
// wait for ever.
const minHeld = 4

func (in *intake) enter(s intakeState) {
	in.state = s
	tokens := make([]link.Token, 0, 3)
	if s != established {
		tokens = append(tokens, link.FreshToken())
	}
	for _, t := range []link.Token{in.opened, in.next} {
		if !t.IsZero() {
			tokens = append(tokens, t)
		}
	}
	in.finder.Expect(tokens...)
}

// hangup says that the stream ended: what comes next is from another host.
func (in *intake) hangup() {
	in.finder.Reset()
	in.held = in.held[:0]
	in.enter(scanning)
}

// take takes the next bytes of the port.
func (in *intake) take(p []byte) {
	for len(p) > 0 {
		chunk := p[:min(len(p), in.horizon())]
		if token, end := in.finder.Find(chunk); end > 0 {
			in.found(token)
			p = p[end:]
			continue
		}
		p = p[len(chunk):]
		in.pass(chunk)
	}
}

// horizon is how far to look ahead: where the state can change, the tokens do,
// and a token that is good now may be mere content behind that point.
func (in *intake) horizon() int {
	switch in.state {
	case preamble:
		return max(1, in.body.Missing())
	case confirmed:
		return len(http2.Preface) - in.preface
	case scanning, established:
	}
	return 64 << 10
}

func (in *intake) found(token link.Token) {
	in.arrived = time.Now()
	in.to.restart()
	in.opener = token
	in.body = link.Body{}
	in.held = in.held[:0]
	in.enter(preamble)
}

// pass takes bytes in which no token ends.
func (in *intake) pass(p []byte) {
	switch in.state {
	case scanning:
	case preamble:
		in.passPreamble(p)
	case confirmed:
		in.passPreface(p)
	case established:
		in.passSession(p)
	}
}

func (in *intake) passPreamble(p []byte) {
	_, done, err := in.body.Take(p)
	if err == nil && !done {
		return
	}
	var e link.Epoch
	if err == nil {
		err = e.UnmarshalBinary(in.body.Bytes())
	}
	if err != nil {
		in.to.log.Warn("malformed preamble", "error", err)
		in.enter(scanning)
		return
	}
	in.opened, in.next = in.opener, e.NextToken
	if in.opened == link.FreshToken() {
		in.opened = link.Token{}
	}
	in.preface = 0
	in.enter(confirmed)
	in.to.begin(e, in.arrived)
}

func (in *intake) passPreface(p []byte) {
	if string(p) != http2.Preface[in.preface:in.preface+len(p)] {
		in.to.restart()
		in.enter(scanning)
		return
	}
	in.preface += len(p)
	if in.preface == len(http2.Preface) {
		in.enter(established)
	}
}

func (in *intake) passSession(p []byte) {
	hold := in.finder.Partial()
	if hold < minHeld {
		hold = 0
	}
	if len(in.held) > 0 {
		p = append(in.held, p...)
	}
	cut := len(p) - hold
	if in.to.session != nil {
		in.to.session.feed(p[:cut])
	}
	in.held = append(in.held[:0], p[cut:]...)
}

package link

import "fmt"

// Epoch is what the host tells a guest at the beginning of each uninterrupted
// run: everything that must be true before the VM is handed out.
type Epoch struct {
	// Number is the VM's generation; the confirmation repeats it.
	Number int64
	VMID   string
	// Time is the host's wall clock in Unix nanoseconds, read just before writing.
	Time int64
	// Entropy seeds the guest's random generator; 64 bytes.
	Entropy []byte
	// ReplyNonce heads the confirmation, so that the host can tell it from stale bytes.
	ReplyNonce Token
	// NextToken is the secret that restarts the link once this session is established.
	NextToken Token
	// Identity is what the guest shall be from now on; nil leaves it as it is.
	Identity *Identity
	// Boot says that the guest was started from its disk rather than from memory.
	Boot bool
}

// Identity is what distinguishes one Linux machine from its copies.
type Identity struct {
	Hostname string
	// MachineID is 32 hexadecimal digits, BootID a UUID with hyphens.
	MachineID, BootID string
	SSHHostKeys       []HostKey
}

// HostKey is an SSH host key.
type HostKey struct {
	// Type is the infix of the file name: "ed25519" or "ecdsa".
	Type string
	// Private is in OpenSSH's PEM format; Public is one line of authorized_keys format.
	Private, Public string
}

// Confirmation is the agent's answer to an epoch. An epoch holds only if Error
// is empty and every part that was asked for is confirmed.
type Confirmation struct {
	Number                          int64
	AgentVersion                    string
	Reseeded, ClockSet, IdentitySet bool
	// ClockUnixNs is the guest's wall clock, read back as the last step.
	ClockUnixNs   int64
	KernelRelease string
	Error         string
}

const (
	epochNumber = iota + 1
	epochVMID
	epochTime
	epochEntropy
	epochReplyNonce
	epochNextToken
	epochIdentity
	epochBoot
)

// MarshalBinary encodes e as a record. It never fails.
func (e Epoch) MarshalBinary() ([]byte, error) {
	var enc encoder
	enc.int(epochNumber, e.Number)
	enc.text(epochVMID, e.VMID)
	enc.int(epochTime, e.Time)
	enc.bytes(epochEntropy, e.Entropy)
	enc.token(epochReplyNonce, e.ReplyNonce)
	enc.token(epochNextToken, e.NextToken)
	if e.Identity != nil {
		enc.bytes(epochIdentity, e.Identity.encode())
	}
	enc.flag(epochBoot, e.Boot)
	return enc.b, nil
}

// UnmarshalBinary decodes a record. It fails without a reply nonce and a next
// token: such an epoch could be neither answered nor followed by another.
func (e *Epoch) UnmarshalBinary(b []byte) error {
	*e = Epoch{}
	d := decoder{rest: b}
	for d.next() {
		switch d.tag {
		case epochNumber:
			e.Number = d.int()
		case epochVMID:
			e.VMID = d.text()
		case epochTime:
			e.Time = d.int()
		case epochEntropy:
			e.Entropy = d.clone()
		case epochReplyNonce:
			e.ReplyNonce = d.token()
		case epochNextToken:
			e.NextToken = d.token()
		case epochIdentity:
			e.Identity = new(Identity)
			d.err = e.Identity.decode(d.value)
		case epochBoot:
			e.Boot = d.flag()
		}
	}
	if d.err == nil && (e.ReplyNonce.IsZero() || e.NextToken.IsZero()) {
		d.err = errRecord
	}
	if d.err != nil {
		return fmt.Errorf("decode epoch: %w", d.err)
	}
	return nil
}

const (
	identityHostname = iota + 1
	identityMachineID
	identityBootID
	identityHostKey
)

func (id *Identity) encode() []byte {
	var enc encoder
	enc.text(identityHostname, id.Hostname)
	enc.text(identityMachineID, id.MachineID)
	enc.text(identityBootID, id.BootID)
	for _, k := range id.SSHHostKeys {
		enc.bytes(identityHostKey, k.encode())
	}
	return enc.b
}

func (id *Identity) decode(b []byte) error {
	d := decoder{rest: b}
	for d.next() {
		switch d.tag {
		case identityHostname:
			id.Hostname = d.text()
		case identityMachineID:
			id.MachineID = d.text()
		case identityBootID:
			id.BootID = d.text()
		case identityHostKey:
			var k HostKey
			d.err = k.decode(d.value)
			id.SSHHostKeys = append(id.SSHHostKeys, k)
		}
	}
	return d.err
}

const (
	hostKeyType = iota + 1
	hostKeyPrivate
	hostKeyPublic
)

func (k HostKey) encode() []byte {
	var enc encoder
	enc.text(hostKeyType, k.Type)
	enc.text(hostKeyPrivate, k.Private)
	enc.text(hostKeyPublic, k.Public)
	return enc.b
}

func (k *HostKey) decode(b []byte) error {
	d := decoder{rest: b}
	for d.next() {
		switch d.tag {
		case hostKeyType:
			k.Type = d.text()
		case hostKeyPrivate:
			k.Private = d.text()
		case hostKeyPublic:
			k.Public = d.text()
		}
	}
	return d.err
}

const (
	confirmationNumber = iota + 1
	confirmationAgentVersion
	confirmationReseeded
	confirmationClockSet
	confirmationIdentitySet
	confirmationClock
	confirmationKernelRelease
	confirmationError
)

// MarshalBinary encodes c as a record. It never fails.
func (c Confirmation) MarshalBinary() ([]byte, error) {
	var enc encoder
	enc.int(confirmationNumber, c.Number)
	enc.text(confirmationAgentVersion, c.AgentVersion)
	enc.flag(confirmationReseeded, c.Reseeded)
	enc.flag(confirmationClockSet, c.ClockSet)
	enc.flag(confirmationIdentitySet, c.IdentitySet)
	enc.int(confirmationClock, c.ClockUnixNs)
	enc.text(confirmationKernelRelease, c.KernelRelease)
	enc.text(confirmationError, c.Error)
	return enc.b, nil
}

// UnmarshalBinary decodes a record.
func (c *Confirmation) UnmarshalBinary(b []byte) error {
	*c = Confirmation{}
	d := decoder{rest: b}
	for d.next() {
		switch d.tag {
		case confirmationNumber:
			c.Number = d.int()
		case confirmationAgentVersion:
			c.AgentVersion = d.text()
		case confirmationReseeded:
			c.Reseeded = d.flag()
		case confirmationClockSet:
			c.ClockSet = d.flag()
		case confirmationIdentitySet:
			c.IdentitySet = d.flag()
		case confirmationClock:
			c.ClockUnixNs = d.int()
		case confirmationKernelRelease:
			c.KernelRelease = d.text()
		case confirmationError:
			c.Error = d.text()
		}
	}
	if d.err != nil {
		return fmt.Errorf("decode confirmation: %w", d.err)
	}
	return nil
}

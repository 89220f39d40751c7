-- KEYS[1] the line of a server; ARGV: how long it may be, the offer, its life in ms. false means that it is as long as that.
if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[1]) then return false end
local id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', 10000, '*', 'o', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return id

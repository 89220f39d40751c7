-- KEYS[1] the logins that have ended, a stream; ARGV: the id of one more, for how long it is noted
-- in ms, and of how many at most that is.
redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[3], '*', 'i', ARGV[1])
local now = redis.call('TIME')
redis.call('XTRIM', KEYS[1], 'MINID', '~', string.format('%.0f', now[1] * 1000 - ARGV[2]))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1

-- KEYS[1] the stream; ARGV: the place of the mark, life in ms. Returns the entries. What is
-- to be added from now on has to be behind the mark.
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
redis.pcall('XADD', KEYS[1], ARGV[1], 'm', '') -- refused when a later owner was here
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('XRANGE', KEYS[1], '-', '+')

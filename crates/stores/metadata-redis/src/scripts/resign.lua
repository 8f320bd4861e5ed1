-- role, holder
local key = prefix .. 'leader:' .. ARGV[4]
if redis.call('HGET', key, 'holder') ~= ARGV[5] then
  return 0
end
redis.call('DEL', key)
redis.call('SREM', prefix .. 'leaders', ARGV[4])
emit('leader_gone', ARGV[4], '', '')
save()
return 1

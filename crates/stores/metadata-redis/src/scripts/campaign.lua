-- role, holder, the candidate's document, length of the lease in ms; answers who leads
local role, holder, document = ARGV[4], ARGV[5], ARGV[6]
local key = prefix .. 'leader:' .. role
local held = redis.call('HMGET', key, 'holder', 'document', 'token', 'lease')
local lease = now + ARGV[7]
-- After its end as well, as long as nobody else has taken the role.
if held[1] == holder then
  lease = math.max(lease, tonumber(held[4]))
  redis.call('HSET', key, 'lease', text(lease))
  return { held[2], held[3], text(lease) }
end
if held[1] and tonumber(held[4]) > now then
  return { held[2], held[3], held[4] }
end
-- Positions of the feed only grow, also from one life to the next.
local token = text(emit('leader_changed', role, document, text(lease)))
redis.call('HSET', key, 'holder', holder, 'document', document, 'token', token,
  'lease', text(lease))
redis.call('SADD', prefix .. 'leaders', role)
save()
return { document, token, text(lease) }

-- For each instance 12 arguments: name; what must still hold (its version or 0, its worker's lease,
-- the floor or '' where it does not matter); version and load; '1' where nothing else changes;
-- application, state, since, reason; the event's document. Answers 1 for each that was written,
-- 0 where something no longer held.
local answers, leases = {}, {}
local floor = redis.call('HGET', state, 'floor')

for index = 4, #ARGV, 12 do
  local name, version, lease = ARGV[index], ARGV[index + 1], ARGV[index + 2]
  local worker = string.match(name, '@(.*)$')
  if leases[worker] == nil then
    leases[worker] = redis.call('HGET', prefix .. 'worker:' .. worker, 'lease')
  end
  local key = prefix .. 'instance:' .. name
  local current = redis.call('HGET', key, 'version') or '0'
  local free = ARGV[index + 3] == '' or ARGV[index + 3] == floor
  if current == version and leases[worker] == lease and free then
    if ARGV[index + 6] == '1' then
      redis.call('HSET', key, 'version', ARGV[index + 4], 'load', ARGV[index + 5])
    else
      redis.call('HSET', key, 'version', ARGV[index + 4], 'load', ARGV[index + 5],
        'application', ARGV[index + 7], 'state', ARGV[index + 8], 'since', ARGV[index + 9],
        'reason', ARGV[index + 10])
    end
    if version == '0' then
      redis.call('SADD', prefix .. 'instances', name)
      redis.call('SADD', prefix .. 'worker:' .. worker .. ':instances', name)
    end
    emit('instance_changed', name, ARGV[index + 11], '')
    answers[#answers + 1] = 1
  else
    answers[#answers + 1] = 0
  end
end
save()
return answers
